// What a person gives to the model: a drawing, a text, a prompt, or a form made from its inputs.
import { element } from "/page/elements.js";
import { imageInput } from "/page/images.js";

const INTEGER = /^U?INT/;

export function buildInput(model, form, ask) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask();
  });
  const kind = model.parameters.kind;
  if (kind === "completion") return completion(model, form);
  if (kind === "image" && model.inputs.length === 1) {
    const image = imageInput(model.inputs[0], form, ask);
    if (image) return { hint: image.hint, request: async () => prediction(model, [await image.value()]) };
  }
  return fields(model, form);
}

// One row of each input, or the whole of those that have no rows.
function prediction(model, values) {
  const path = `/v1/models/${encodeURIComponent(model.name)}:predict`;
  const isByRow = model.inputs.every((one) => one.shape[0] === -1);
  const named = Object.fromEntries(model.inputs.map((one, place) => [one.name, values[place]]));
  const single = model.outputs.length === 1 ? model.outputs[0].name : null;
  return {
    path,
    body: JSON.stringify(isByRow ? { instances: [named] } : { inputs: named }),
    outputs: (answer) => {
      const found = isByRow ? answer.predictions[0] : answer.outputs;
      return single === null ? found : { [single]: found };
    },
  };
}

function fields(model, form) {
  const inputs = model.inputs.map((one) => field(one, form, model.parameters.kind === "text"));
  form.append(element("div", { className: "row" }, element("button", { className: "main", textContent: "Ask" })));
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  return { hint: "Fill in the form and ask.", request: async () => prediction(model, inputs.map((one) => one())) };
}

// Returns a function that reads the value.
function field(input, form, isText) {
  const row = input.shape[0] === -1 ? input.shape.slice(1) : input.shape;
  const count = row.reduce((product, size) => product * size, 1);
  const shape = row.length ? `${input.datatype} ${row.map((size) => (size < 0 ? "any" : size)).join("×")}` : input.datatype;
  const legend = element("legend", { textContent: `${input.name} (${shape})` });
  const box = form.appendChild(element("fieldset", {}, legend));
  if (input.datatype === "BYTES" && (row.length === 0 || (row.length === 1 && count === 1))) {
    const area = box.appendChild(element(isText ? "textarea" : "input", { name: input.name, className: "words" }));
    return () => (row.length ? [area.value] : area.value);
  }
  const isNumber = !["BYTES", "BOOL"].includes(input.datatype);
  if (isNumber && row.length <= 1 && count > 0 && count <= 32) {
    const list = element("div", { className: "row" });
    const boxes = Array.from({ length: count }, (_, place) => list.appendChild(number(input, place)));
    box.append(list);
    return () => (row.length ? boxes.map((one) => Number(one.value)) : Number(boxes[0].value));
  }
  if (input.datatype === "BOOL" && row.length === 0) {
    const check = box.appendChild(element("input", { type: "checkbox", name: input.name }));
    return () => check.checked;
  }
  const area = box.appendChild(element("textarea", { name: input.name, className: "data", spellcheck: false }));
  area.value = JSON.stringify(filled(input.datatype, row));
  return () => {
    try {
      return JSON.parse(area.value);
    } catch (problem) {
      throw new Error(`${input.name}: ${problem.message}`);
    }
  };
}

function number(input, place) {
  return element("input", {
    type: "number", name: `${input.name}-${place}`, value: "0", required: true,
    step: INTEGER.test(input.datatype) ? "1" : "any",
  });
}

function filled(datatype, shape) {
  if (!shape.length) return { BYTES: "", BOOL: false }[datatype] ?? 0;
  return Array.from({ length: Math.max(1, Math.min(shape[0], 4096)) }, () => filled(datatype, shape.slice(1)));
}

function completion(model, form) {
  const prompt = element("textarea", { id: "prompt", placeholder: "The text to continue" });
  const size = element("input", { type: "number", id: "size", min: "1", max: "4096", value: "64", step: "1" });
  const heat = element("input", { type: "number", id: "heat", min: "0", max: "2", value: "0.8", step: "0.1" });
  const write = element("button", { className: "main", textContent: "Write" });
  const stop = element("button", { type: "button", id: "stop", textContent: "Stop", disabled: true });
  form.append(prompt, element("div", { className: "row" },
    element("label", {}, "tokens ", size), element("label", {}, "temperature ", heat), write, stop));
  let control = new AbortController();
  stop.addEventListener("click", () => control.abort());
  form.addEventListener("submit", () => { stop.disabled = false; }, true);
  return {
    hint: "Write the beginning of a text.",
    signal: () => {
      control.abort();
      control = new AbortController();
      return control.signal;
    },
    over: () => { stop.disabled = true; },
    request: async () => ({
      path: "/v1/completions",
      streams: true,
      body: JSON.stringify({
        model: model.name, prompt: prompt.value, max_tokens: Number(size.value),
        temperature: Number(heat.value), stream: true,
      }),
    }),
  };
}
