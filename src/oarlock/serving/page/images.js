// An image as a model takes it: drawn by hand or read from a file, then scaled to the model's pixels.
import { element } from "/page/elements.js";

const DRAWN = 280; // pixels of the canvas
const INK = 22;
const FILLED = 20 / 28; // of the side: how much of it a centered drawing takes, as in MNIST

// Returns null if the shape is no image's.
export function imageInput(input, form, ask) {
  if (input.datatype === "BYTES") return fileInput(input, form, ask);
  const layout = layoutOf(input.shape.slice(1));
  if (!layout || input.shape[0] > 1) return null;
  const canvas = element("canvas", { id: "drawing", width: DRAWN, height: DRAWN });
  const sent = element("canvas", { id: "sent", width: layout.width, height: layout.height });
  const file = element("input", { type: "file", id: "file", accept: "image/*" });
  const ink = element("input", { type: "color", id: "ink", value: "#ffffff" });
  const center = element("input", { type: "checkbox", id: "center", checked: true });
  const range = element("select", { id: "range" },
    element("option", { value: "1", textContent: "0 to 1" }), element("option", { value: "255", textContent: "0 to 255" }));
  if (/INT/.test(input.datatype)) range.value = "255";
  const clear = element("button", { type: "button", id: "clear", textContent: "Clear" });
  form.append(canvas, element("div", { className: "row" },
    element("figure", {}, sent, element("figcaption", { textContent: `${layout.width}×${layout.height}, as sent` })),
    element("div", {}, element("label", {}, center, " center the drawing"), element("br"),
      element("label", {}, "values ", range), ...(layout.channels === 3 ? [element("label", {}, " ink ", ink)] : []))),
    element("div", { className: "row" }, clear, file, element("button", { className: "main", textContent: "Ask" })));

  const pen = canvas.getContext("2d");
  let picture = null; // from a file; else what is drawn
  const wipe = () => {
    picture = null;
    file.value = "";
    pen.fillStyle = "#000";
    pen.fillRect(0, 0, DRAWN, DRAWN);
    reduce();
  };
  const reduce = () => scaled(picture || canvas, sent, !picture && center.checked);
  drawing(canvas, pen, ink, () => { picture = null; reduce(); form.dispatchEvent(new Event("input")); ask(); });
  clear.addEventListener("click", wipe);
  center.addEventListener("change", reduce);
  file.addEventListener("change", async () => {
    if (!file.files.length) return;
    picture = await createImageBitmap(file.files[0]);
    pen.drawImage(picture, 0, 0, DRAWN, DRAWN);
    reduce();
    ask();
  });
  wipe();
  return {
    hint: "Draw, or choose a file.",
    value: async () => pixels(sent, layout, Number(range.value), /INT/.test(input.datatype)),
  };
}

// [height, width], with one or three channels last or first; or all in one row, if that is a square.
function layoutOf(shape) {
  const isChannels = (size) => size === 1 || size === 3;
  if (shape.some((size) => size > 2048)) return null;
  const known = shape.map((size) => (size < 0 ? 224 : size));
  if (known.length === 2) return { height: known[0], width: known[1], channels: 1, order: "plain" };
  if (known.length === 3 && isChannels(known[2])) return { height: known[0], width: known[1], channels: known[2], order: "last" };
  if (known.length === 3 && isChannels(known[0])) return { height: known[1], width: known[2], channels: known[0], order: "first" };
  const side = Math.sqrt(known[0]);
  if (known.length === 1 && Number.isInteger(side)) return { height: side, width: side, channels: 1, order: "flat" };
  return null;
}

function drawing(canvas, pen, ink, done) {
  let last = null;
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [(event.clientX - box.left) * DRAWN / box.width, (event.clientY - box.top) * DRAWN / box.height];
  };
  const stroke = (event) => {
    const next = place(event);
    Object.assign(pen, { lineWidth: INK, lineCap: "round", lineJoin: "round", strokeStyle: ink.value });
    pen.beginPath();
    pen.moveTo(...last);
    pen.lineTo(...next);
    pen.stroke();
    last = next;
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    last = place(event);
    stroke(event);
  });
  canvas.addEventListener("pointermove", (event) => last && stroke(event));
  const end = () => {
    if (last) done();
    last = null;
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
}

function scaled(source, target, isCentered) {
  const pen = target.getContext("2d", { willReadFrequently: true });
  pen.imageSmoothingQuality = "high";
  pen.fillStyle = "#000";
  pen.fillRect(0, 0, target.width, target.height);
  const box = isCentered ? inked(source) : null;
  if (!box) {
    pen.drawImage(source, 0, 0, target.width, target.height);
    return;
  }
  const scale = FILLED * Math.min(target.width, target.height) / Math.max(box.width, box.height);
  const [width, height] = [box.width * scale, box.height * scale];
  // The center of mass goes to the middle, as far as nothing leaves the image.
  const x = clamp(target.width / 2 - (box.massX - box.x) * scale, target.width - width);
  const y = clamp(target.height / 2 - (box.massY - box.y) * scale, target.height - height);
  pen.drawImage(source, box.x, box.y, box.width, box.height, x, y, width, height);
}

function clamp(value, most) {
  return Math.max(0, Math.min(value, most));
}

// The box around what is not black, and its center of mass; or null.
function inked(canvas) {
  const { data, width } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let [left, top, right, bottom] = [Infinity, Infinity, -1, -1];
  let [mass, sumX, sumY] = [0, 0, 0];
  for (let at = 0; at < data.length; at += 4) {
    const light = data[at] + data[at + 1] + data[at + 2];
    if (light === 0) continue;
    const [x, y] = [(at / 4) % width, Math.floor(at / 4 / width)];
    [left, top, right, bottom] = [Math.min(left, x), Math.min(top, y), Math.max(right, x), Math.max(bottom, y)];
    [mass, sumX, sumY] = [mass + light, sumX + light * x, sumY + light * y];
  }
  if (!mass) return null;
  const size = { width: right - left + 1, height: bottom - top + 1 };
  return { x: left, y: top, ...size, massX: sumX / mass, massY: sumY / mass };
}

function pixels(canvas, layout, range, isWhole) {
  const { data } = canvas.getContext("2d").getImageData(0, 0, layout.width, layout.height);
  const value = (byte) => (isWhole || range === 255 ? Math.round(byte * range / 255) : Number((byte / 255).toFixed(3)));
  const at = (y, x, channel) => {
    const place = 4 * (y * layout.width + x);
    const isGray = layout.channels === 1;
    return value(isGray ? 0.299 * data[place] + 0.587 * data[place + 1] + 0.114 * data[place + 2] : data[place + channel]);
  };
  const rows = (channel) => many(layout.height, (y) => many(layout.width, (x) => at(y, x, channel)));
  if (layout.order === "first") return many(layout.channels, rows);
  if (layout.order === "plain") return rows(0);
  if (layout.order === "flat") return rows(0).flat();
  return many(layout.height, (y) => many(layout.width, (x) => many(layout.channels, (channel) => at(y, x, channel))));
}

function many(count, make) {
  return Array.from({ length: count }, (_, place) => make(place));
}

// The model decodes the file itself.
function fileInput(input, form, ask) {
  const file = element("input", { type: "file", id: "file", accept: "image/*", required: true });
  form.append(element("div", { className: "row" }, file, element("button", { className: "main", textContent: "Ask" })));
  file.addEventListener("change", () => file.files.length && ask());
  return {
    hint: "Choose a file.",
    value: async () => {
      const bytes = file.files.length ? new Uint8Array(await file.files[0].arrayBuffer()) : [];
      const content = { b64: btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join("")) };
      return input.shape.length > 1 ? [content] : content;
    },
  };
}
