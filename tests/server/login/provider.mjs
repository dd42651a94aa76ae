// A real OpenID provider on loopback. Its login page logs in as the account in the cookie `person`.
import { createServer } from "node:http";
import { Provider } from "oidc-provider";

const [redirectUri, clientSecret] = process.argv.slice(2);
const groups = { ada: ["gpu-admins", "ml"], bob: ["ml"], eve: [] };

const server = createServer();
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [{ client_id: "pilotlight", client_secret: clientSecret, redirect_uris: [redirectUri], token_endpoint_auth_method: "client_secret_post" }],
    claims: { openid: ["sub"], profile: ["preferred_username"], email: ["email"], groups: ["groups"] },
    scopes: ["openid", "profile", "email", "groups"],
    conformIdTokenClaims: false,
    pkce: { required: () => true },
    findAccount: (_context, id) => ({ accountId: id, claims: () => ({ sub: id, preferred_username: `${id}@example.com`, groups: groups[id] ?? [] }) }),
    interactions: { url: (_context, interaction) => `/person/${interaction.uid}` },
    features: { devInteractions: { enabled: false } },
    ttl: { AccessToken: 600, AuthorizationCode: 60, Grant: 600, IdToken: 600, Interaction: 600, Session: 600 },
  });
  const answer = provider.callback();
  server.on("request", async (request, response) => {
    if (!request.url.startsWith("/person/")) return answer(request, response);
    try {
      const details = await provider.interactionDetails(request, response);
      const person = /(?:^|; )person=(\w+)/.exec(request.headers.cookie ?? "")?.[1] ?? "ada";
      const grant = new provider.Grant({ accountId: person, clientId: details.params.client_id });
      grant.addOIDCScope(details.params.scope);
      await provider.interactionFinished(request, response, { login: { accountId: person }, consent: { grantId: await grant.save() } });
    } catch (error) {
      response.writeHead(500).end(String(error));
    }
  });
  console.log(JSON.stringify({ issuer }));
});
