// Elements from names, attributes and children; texts never become markup.

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG_NAMESPACE, name), attributes, children);
}

function html(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function byId(id) {
  return document.getElementById(id);
}

function all(selector, root = document) {
  return [...root.querySelectorAll(selector)];
}

const MARKER_SHAPES = [circle, square, polygon(3, -90), polygon(4, -90), polygon(3, 90), star,
  polygon(5, -90), cross, polygon(6, 0)];
const RUN_COLORS = 7; // --run-0 to --run-6 in report.css; coprime to the number of shapes

function circle(radius) {
  return `M${-radius},0a${radius},${radius} 0 1 0 ${2 * radius},0a${radius},${radius} 0 1 0 ${-2 * radius},0z`;
}

function square(radius) {
  const half = 0.88 * radius;
  return `M${-half},${-half}H${half}V${half}H${-half}z`;
}

function corners(radii, turn) {
  return "M" + radii.map((radius, index) => {
    const angle = (turn + (360 * index) / radii.length) * (Math.PI / 180);
    return `${(radius * Math.cos(angle)).toFixed(2)},${(radius * Math.sin(angle)).toFixed(2)}`;
  }).join("L") + "z";
}

function polygon(count, turn) {
  return (radius) => corners(Array(count).fill(1.18 * radius), turn);
}

function star(radius) {
  return corners([1, 0, 1, 0, 1, 0, 1, 0, 1, 0].map((far) => radius * (far ? 1.3 : 0.58)), -90);
}

function cross(radius) {
  const [far, near] = [1.15 * radius, 0.42 * radius];
  return `M${-near},${-far}H${near}V${-near}H${far}V${near}H${near}V${far}H${-near}V${near}H${-far}V${-near}H${-near}z`;
}

// A run's marker; `place` is the run's place in the page, which decides its colour and shape.
function marker(run, place, radius) {
  return svg("path", {
    class: run.measured ? "mark measured" : "mark",
    d: MARKER_SHAPES[place % MARKER_SHAPES.length](radius),
  });
}

function runColor(place) {
  return `--c: var(--run-${place % RUN_COLORS})`;
}
