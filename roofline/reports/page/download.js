// The chart as it is seen, as a file: SVG that needs no style sheet, or PNG.

const COPIED_STYLES = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray",
  "stroke-linecap", "stroke-linejoin", "opacity", "font-weight", "font-size", "paint-order",
  "visibility", "display"];
const PNG_SCALE = 2;

// The chart with its title above and the shown runs below.
function chartPicture(chart, title) {
  const drawn = all("svg.roofline", chart.host)[0];
  const copy = drawn.cloneNode(true);
  const [originals, copies] = [drawn, copy].map((root) => [root, ...all("*", root)]);
  originals.forEach((original, index) => {
    const style = getComputedStyle(original);
    const values = COPIED_STYLES.map((name) => [name, style.getPropertyValue(name)]);
    copies[index].setAttribute("style", values.filter(([, value]) => value && value !== "normal")
      .map(([name, value]) => `${name}:${value}`).join(";"));
  });
  const paper = getComputedStyle(document.body);
  const rows = chart.runs().map(({ run }) => run);
  const [head, line] = [54, 20];
  const height = head + chart.height + (rows.length ? rows.length * line + 14 : 0);
  for (const link of all("a", copy)) { // a link would lead out of the picture
    const group = svg("g", { style: link.getAttribute("style") });
    group.append(...link.childNodes);
    link.replaceWith(group);
  }
  copy.removeAttribute("role");
  copy.removeAttribute("class");
  copy.setAttribute("y", head);
  copy.setAttribute("x", 0);
  const ink = { fill: paper.color, "font-family": FONT };
  const text = (x, y, size, words, extra = {}) => svg("text", { ...ink, x, y, "font-size": size, ...extra }, words);
  const picture = svg("svg", {
    xmlns: SVG_NAMESPACE, viewBox: `0 0 ${chart.width} ${height}`, width: chart.width, height,
  }, svg("rect", { width: "100%", height: "100%", fill: paper.backgroundColor }),
  text(14, 24, 17, title, { "font-weight": 650 }), text(14, 44, 12.5, chart.device.name), copy);
  rows.forEach((run, index) => {
    const y = head + chart.height + index * line + 8;
    const mark = all("svg.key-picture path", byId("runs")).find((path) =>
      path.closest("[data-key]").dataset.key === run.key);
    const style = mark ? getComputedStyle(mark) : paper;
    picture.append(svg("path", {
      d: mark?.getAttribute("d") ?? "", transform: `translate(24,${y})`, fill: style.fill,
      stroke: style.stroke, "stroke-width": style.strokeWidth,
    }), text(40, y + 4, 12.5, elided(`${run.label}: ${run.time}, ${run.rate}, ${run.roofText}`, Math.floor(chart.width / 7))));
  });
  return { text: new XMLSerializer().serializeToString(picture), width: chart.width, height };
}

function fileName(chart, extension) {
  const device = chart.device.key.replace(/[^\w.-]+/g, "-");
  const level = chart.options.level();
  return `roofline-${device}${level === "all" ? "" : `-${level}`}.${extension}`;
}

function save(blob, name) {
  const link = html("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function downloadSvg(chart, title) {
  const text = `<?xml version="1.0" encoding="UTF-8"?>\n${chartPicture(chart, title).text}\n`;
  save(new Blob([text], { type: "image/svg+xml" }), fileName(chart, "svg"));
}

function downloadPng(chart, title) {
  const picture = chartPicture(chart, title);
  const url = URL.createObjectURL(new Blob([picture.text], { type: "image/svg+xml" }));
  const image = new Image();
  image.onload = () => {
    const canvas = html("canvas", { width: PNG_SCALE * picture.width, height: PNG_SCALE * picture.height });
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    URL.revokeObjectURL(url);
    canvas.toBlob((blob) => save(blob, fileName(chart, "png")), "image/png");
  };
  image.src = url;
}
