// Projects of the server, what they spend, and the first token of a new one: for administrators of the server.
import { useState } from "preact/hooks";
import { request, requestWithRetry } from "../api/request.ts";
import { CreateProject, CreateToken, Projects, type ProjectsResult } from "../generated/api.ts";
import { money } from "../format.ts";
import { useLoaded } from "../live/loaded.ts";
import { runMutation } from "../live/run-mutation.ts";
import { Copy } from "../ui/copy.tsx";
import { ObjectForm } from "../ui/objects.tsx";
import { Panel, Problem } from "../ui/parts.tsx";

type Project = ProjectsResult["projects"]["nodes"][number];

export function ProjectsPanel() {
  const { data, problem, reload } = useLoaded(Projects, {});
  const [secret, setSecret] = useState<{ project: string; text: string } | null>(null);
  const createToken = (project: Project) =>
    runMutation(async () => {
      const input = { name: `${project.name} admin`, role: "ADMIN" as const, projectId: project.id };
      const payload = (await request(CreateToken, { input })).createToken;
      if (payload.secret) setSecret({ project: project.name, text: payload.secret });
      return payload.errors;
    });
  return (
    <>
      <Panel title="Projects">
        {problem && <Problem retry={reload}>{problem}</Problem>}
        <table class="grid-table cards-on-phone">
          <thead>
            <tr>
              <th scope="col">Name</th>
              <th scope="col" class="right">Per hour</th>
              <th scope="col" class="right">This month</th>
              <th scope="col">
                <span class="hidden">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {(data?.projects.nodes ?? []).map((project) => (
              <tr key={project.id}>
                <td data-label="Name">{project.name}</td>
                <td data-label="Per hour" class="right figures">{money(project.spend.burnRate, 2)}</td>
                <td data-label="This month" class="right figures">{money(project.spend.spentThisMonth, 2)}</td>
                <td class="right">
                  <button type="button" class="button small" aria-label={`New token of ${project.name}`} onClick={() => createToken(project)}>
                    New token
                  </button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
        {secret && (
          <div class="body foot">
            <div class="secret" role="status">
              <span>
                <strong>Admin token of {secret.project}, shown only once:</strong> <span class="mono">{secret.text}</span>
              </span>
              <Copy text={secret.text} label="the token" />
            </div>
          </div>
        )}
      </Panel>
      <ObjectForm
        title="New project"
        action="Create project"
        succeeded="Project created"
        inputs={[{ name: "name", label: "Name", hint: "1 to 100 characters; it can’t be changed later", placeholder: "research" }]}
        submit={async ({ name = "" }) => (await requestWithRetry(CreateProject, { input: { name } })).createProject.errors}
        done={reload}
      />
    </>
  );
}
