// Places for labels where they cover no marker and no other label. A box is [x, y, width, height].

const LABEL_DISTANCES = [9, 14, 20, 28, 38, 50, 64, 80, 100, 125];
const LABEL_ANGLES = [0, -25, 25, -50, 50, 180, -155, 155, -130, 130, -90, 90];
const LEADER_DISTANCE = 20; // a label farther from its point than this has a line that leads to it
const LINE_COST = 14; // of a label that crosses a line: it stays legible, but is less good

function overlap(a, b, gap = 0) {
  return a[0] < b[0] + b[2] + gap && b[0] < a[0] + a[2] + gap
    && a[1] < b[1] + b[3] + gap && b[1] < a[1] + a[3] + gap;
}

function inside(box, frame) {
  return box[0] >= frame[0] && box[1] >= frame[1]
    && box[0] + box[2] <= frame[0] + frame[2] && box[1] + box[3] <= frame[1] + frame[3];
}

// The best place for a label around a point, or null where at every place it, or the line that
// leads to it, covers a marker or another label.
function placeAround([x, y], [width, height], frame, taken, lines) {
  let best = null;
  const apart = taken.filter((other) => !overlap(other, [x - 1, y - 1, 2, 2]));
  for (const distance of LABEL_DISTANCES) {
    for (const angle of LABEL_ANGLES) {
      const [right, down] = [Math.cos(angle * Math.PI / 180), Math.sin(angle * Math.PI / 180)];
      const box = [
        x + right * distance - (right > 0.3 ? 0 : right < -0.3 ? width : width / 2),
        y + down * distance - (down > 0.3 ? 0 : down < -0.3 ? height : height / 2),
        width, height,
      ];
      if (!inside(box, frame) || taken.some((other) => overlap(box, other, 1))) continue;
      const leader = leaderBoxes([x, y], box, distance);
      if (leader.some((part) => apart.some((other) => overlap(part, other)))) continue;
      const crossed = lines.filter((other) => overlap(box, other)).length;
      const cost = distance + (crossed ? LINE_COST : 0);
      if (best === null || cost < best.cost) best = { box, distance, cost };
    }
    if (best !== null && best.cost <= distance) break; // all others are farther
  }
  return best;
}

// Where the line that leads from a point to its label ends.
function leaderEnd([x, y], [left, top, width, height]) {
  return [Math.max(left, Math.min(x, left + width)), Math.max(top, Math.min(y, top + height))];
}

// Boxes along the line that leads to a label; none for a label that is close to its point.
function leaderBoxes(point, box, distance) {
  return distance > LEADER_DISTANCE ? lineBoxes(point, leaderEnd(point, box)) : [];
}

// Boxes along a text that is turned by an angle, in radians, around its lower left corner.
function turnedBoxes([x, y], [width, height], angle) {
  const count = Math.max(1, Math.ceil(width / height));
  return Array.from({ length: count }, (_, index) => {
    const along = ((index + 0.5) * width) / count;
    const centre = [
      x + along * Math.cos(angle) + (height / 2) * Math.sin(angle),
      y + along * Math.sin(angle) - (height / 2) * Math.cos(angle),
    ];
    return [centre[0] - height / 2, centre[1] - height / 2, height, height];
  });
}

// Boxes along a line, to be avoided by labels.
function lineBoxes([x1, y1], [x2, y2], step = 8) {
  const count = Math.max(1, Math.ceil(Math.hypot(x2 - x1, y2 - y1) / step));
  return Array.from({ length: count + 1 }, (_, index) => [
    x1 + ((x2 - x1) * index) / count - 1, y1 + ((y2 - y1) * index) / count - 1, 2, 2,
  ]);
}

function elided(text, most) {
  if (text.length <= most) return text;
  return `${text.slice(0, Math.ceil(most / 2))}…${text.slice(text.length - Math.floor(most / 2))}`;
}

const measureText = (() => {
  const context = document.createElement("canvas").getContext("2d");
  return (text, font) => {
    context.font = font;
    return context.measureText(text).width;
  };
})();
