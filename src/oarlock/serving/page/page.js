// The page of a served model: asks the server what the model takes, builds the input, shows the answer.
import { buildInput } from "/page/inputs.js";
import { showOutputs } from "/page/answers.js";
import { writeSnippets } from "/page/snippets.js";

const byId = (id) => document.getElementById(id);
let token = sessionStorage.getItem("oarlock token") || "";

export async function call(path, options = {}) {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  return fetch(path, { ...options, headers });
}

async function start() {
  const listed = await call("/v2/models");
  byId("login").hidden = listed.status !== 401;
  if (listed.status === 401) return;
  const [name] = (await listed.json()).models;
  const model = await (await call(`/v2/models/${encodeURIComponent(name)}`)).json();
  describe(model);
  const input = buildInput(model, byId("question"), () => ask(model, input));
  byId("hint").textContent = input.hint;
  byId("model").hidden = false;
  const show = () => input.request().then((request) => writeSnippets(request, Boolean(token)), () => {});
  byId("question").addEventListener("input", show);
  show();
}

function describe(model) {
  const about = model.parameters;
  const scores = Object.entries(about.scores || {}).map(([key, value]) => `${key} ${shortNumber(value)}`);
  const parts = [`version ${about.version}`, about.form, about.run && `from ${about.run}`,
    about.step !== null && `step ${about.step}`, ...scores];
  byId("name").textContent = document.title = model.name;
  byId("about").textContent = parts.filter(Boolean).join(" · ");
}

function shortNumber(value) {
  return typeof value === "number" ? Number(value.toPrecision(4)) : value;
}

let latest = 0; // answers to older questions are not shown
async function ask(model, input) {
  const turn = ++latest;
  byId("answer").ariaBusy = "true";
  const begin = performance.now();
  try {
    const request = await input.request();
    writeSnippets(request, Boolean(token));
    const response = await call(request.path, { method: "POST", body: request.body, signal: input.signal?.() });
    if (!response.ok) throw new Error(await sentence(response));
    if (request.streams) {
      await showStream(response, begin, () => turn === latest);
    } else {
      const outputs = request.outputs(parsed(await response.text()));
      if (turn !== latest) return;
      showOutputs(byId("answer"), outputs, model);
    }
    if (turn === latest) byId("time").textContent = `${(performance.now() - begin).toFixed(1)} ms`;
    complain("");
  } catch (problem) {
    if (turn === latest && problem.name !== "AbortError") complain(problem.message);
  } finally {
    if (turn === latest) {
      byId("answer").ariaBusy = "false";
      input.over?.();
    }
  }
}

function complain(text) {
  byId("problem").textContent = text;
  byId("problem").hidden = !text;
}

async function sentence(response) {
  const text = await response.text();
  try {
    const { error } = JSON.parse(text);
    return error.message || error;
  } catch {
    return `${response.status}: ${text.slice(0, 300)}`;
  }
}

// TensorFlow Serving's JSON has NaN and Infinity, which JavaScript's parser refuses.
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return JSON.parse(text.replace(/(?<=[[\s,:])-?(NaN|Infinity)(?=[\],}\s])/g, '"$&"'));
  }
}

async function showStream(response, begin, isLatest) {
  const written = document.createElement("p");
  written.className = "text";
  byId("answer").replaceChildren(written);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (let part = await reader.read(); !part.done && isLatest(); part = await reader.read()) {
    const events = (waiting + part.value).split("\n\n");
    waiting = events.pop();
    for (const event of events) {
      const data = event.replace(/^data: /, "");
      if (data === "[DONE]") continue;
      const piece = JSON.parse(data);
      if (piece.error) throw new Error(piece.error.message);
      written.textContent += piece.choices.map((choice) => choice.text).join("");
    }
    byId("time").textContent = `${(performance.now() - begin).toFixed(0)} ms`;
  }
}

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value.trim();
  sessionStorage.setItem("oarlock token", token);
  begin();
});
document.addEventListener("click", async (event) => {
  const id = event.target.dataset?.copies;
  if (!id) return;
  await navigator.clipboard.writeText(byId(id).textContent);
  event.target.textContent = "Copied";
});

function begin() {
  start().catch((problem) => {
    byId("name").textContent = "This server does not answer";
    byId("about").textContent = problem.message;
  });
}
begin();
