"""The page at /: where to go from here. It needs nothing from elsewhere."""

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Pilotlight</title>
<style>
  :root { color-scheme: light dark; }
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 42rem; margin: 3rem auto; padding: 0 1rem; }
  code, pre { font: 14px/1.5 ui-monospace, monospace; }
  pre { padding: 1rem; border: 1px solid #8885; border-radius: 6px; overflow-x: auto; }
</style>
<h1>Pilotlight</h1>
<p>A GraphQL control plane for GPU instances on Novita.ai. It is running.</p>
<p>Send queries to <code>/graphql</code> with your token, and subscribe there over WebSocket
(<code>graphql-transport-ws</code>):</p>
<pre>curl -s localhost:8000/graphql \\
  -H "authorization: Bearer $TOKEN" -H "content-type: application/json" \\
  -d '{"query": "{ instances(first: 10) { nodes { id name status } } }"}'</pre>
<p>Is it well? <a href="/readyz">/readyz</a> tells.</p>
</html>
"""
