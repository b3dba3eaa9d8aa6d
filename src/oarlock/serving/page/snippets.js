// The request as lines to copy: curl for a shell, and Python with nothing but its standard library.
export function writeSnippets(request, hasToken) {
  const url = location.origin + request.path;
  document.getElementById("curl").textContent = curl(url, request, hasToken);
  document.getElementById("python").textContent = python(url, request, hasToken);
}

function curl(url, request, hasToken) {
  const header = hasToken ? ' -H "Authorization: Bearer $TOKEN"' : "";
  const quoted = request.body.replaceAll("'", "'\\''");
  return `curl${request.streams ? " -N" : ""}${header} ${url} -d '${quoted}'`;
}

function python(url, request, hasToken) {
  const headers = hasToken ? ', headers={"Authorization": "Bearer " + os.environ["TOKEN"]}' : "";
  const shown = request.streams
    ? ["    for line in response:", "        print(line.decode().strip())"]
    : ["    print(json.load(response))"];
  return [
    `import json${hasToken ? ", os" : ""}, urllib.request`,
    "",
    `body = json.loads(r'''${request.body.replaceAll("'", "\\u0027")}''')`,
    `request = urllib.request.Request("${url}", json.dumps(body).encode()${headers})`,
    "with urllib.request.urlopen(request) as response:",
    ...shown,
  ].join("\n");
}
