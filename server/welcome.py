"""What is shown where a page has not been built. It needs nothing from elsewhere."""

STYLE = """
  :root { color-scheme: light dark; }
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 42rem; margin: 3rem auto; padding: 0 1rem; }
  code, pre { font: 14px/1.5 ui-monospace, monospace; }
  pre { padding: 1rem; border: 1px solid #8885; border-radius: 6px; overflow-x: auto; }
"""

RELOAD = '<meta http-equiv="refresh" content="2">\n'
BEING_BUILT = """<p role="status"><strong>This page is being built</strong>, once; it takes about half a minute and will
appear here by itself. The API is ready meanwhile.</p>"""
NOT_BUILT = """<p>For {what}, run <code>{command}</code> in the clone and load this page again: it needs Node.js 20.19
or newer with npm, or else takes Node.js from PyPI.</p>"""


def page(*, what: str, command: str, is_building: bool) -> str:
    """Where to go from here; while the page is being built it looks again by itself."""
    news = BEING_BUILT if is_building else NOT_BUILT.format(what=what, command=command)
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
{RELOAD if is_building else ""}<title>Pilotlight</title>
<style>{STYLE}</style>
<h1>Pilotlight</h1>
<p>A GraphQL control plane for GPU instances on Novita.ai. It is running.</p>
{news}
<p>Send queries to <code>/graphql</code> with your token, and subscribe there over WebSocket
(<code>graphql-transport-ws</code>):</p>
<pre>curl -s localhost:8000/graphql \\
  -H "authorization: Bearer $TOKEN" -H "content-type: application/json" \\
  -d '{{"query": "{{ instances(first: 10) {{ nodes {{ id name status }} }} }}"}}'</pre>
<p>Is it well? <a href="/readyz">/readyz</a> tells.</p>
</html>
"""
