// What the model answers: bars for scores, text as text, numbers large, everything else as data.
import { element } from "/page/elements.js";

const MOST_BARS = 10;
const MOST_VALUES = 1000; // a longer list is data, not scores
const LONGEST = 4000; // characters of data

export function showOutputs(place, outputs, model) {
  const named = Object.entries(outputs);
  const labels = model.parameters.labels;
  place.replaceChildren(...named.flatMap(([name, value]) => {
    const title = named.length > 1 ? [element("h3", { textContent: name })] : [];
    return [...title, ...shown(value, labels)];
  }));
}

function shown(value, labels) {
  const single = Array.isArray(value) && value.length === 1 && !Array.isArray(value[0]) ? value[0] : value;
  if (typeof single === "string") return [element("p", { className: "text", textContent: single })];
  if (typeof single === "number" || typeof single === "boolean") {
    return [element("p", { className: "best", textContent: rounded(single) })];
  }
  const isNumbers = Array.isArray(value) && value.length <= MOST_VALUES && value.every((one) => typeof one === "number");
  if (isNumbers && (labels.length === value.length || areShares(value))) return bars(value, labels);
  if (isNumbers) return [element("p", { className: "text", textContent: value.map(rounded).join("  ") })];
  const text = JSON.stringify(value, null, 1);
  return [element("pre", { textContent: text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text })];
}

function bars(values, labels) {
  const isNamed = labels.length === values.length;
  const ranked = values.map((value, place) => ({ value, name: isNamed ? labels[place] : String(place) }));
  ranked.sort((one, other) => other.value - one.value);
  const least = Math.min(0, ...values);
  const most = Math.max(...values);
  const isShare = areShares(values);
  const list = element("div", { className: "bars" });
  for (const one of ranked.slice(0, MOST_BARS)) {
    const share = isShare ? one.value : (one.value - least) / (most - least || 1);
    const inner = element("i");
    inner.style.width = `${(100 * share).toFixed(1)}%`;
    list.append(element("span", { className: "name", textContent: one.name }),
      element("div", { className: "bar" }, inner),
      element("span", { className: "value", textContent: isShare ? `${(100 * one.value).toFixed(1)} %` : rounded(one.value) }));
  }
  const best = isNamed ? [element("p", { className: "best", id: "best", textContent: ranked[0].name })] : [];
  return [...best, list];
}

// Probabilities of classes: none below 0, and 1 together.
function areShares(values) {
  const sum = values.reduce((total, value) => total + value, 0);
  return values.length > 1 && values.every((value) => value >= 0) && Math.abs(sum - 1) < 0.01;
}

function rounded(value) {
  return typeof value === "number" ? String(Number(value.toPrecision(6))) : String(value);
}
