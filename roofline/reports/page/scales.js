// Logarithmic axes: places, ticks and their texts. Domains are in powers of ten.

const DECADE_LABEL_PIXELS = 40;
const SI_PREFIXES = { "-3": "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E" };

function logScale([low, high], [start, end]) {
  const pixels = (end - start) / (high - low);
  const scale = (value) => start + (Math.log10(value) - low) * pixels;
  scale.invert = (place) => low + (place - start) / pixels;
  return scale;
}

// Ticks with a flag each for a line of the grid and for a label.
function logTicks([low, high], pixels) {
  const perDecade = pixels / (high - low);
  if (perDecade > 900) return linearTicks(10 ** low, 10 ** high, pixels / 80);
  const labelled = perDecade > 420 ? [1, 2, 3, 4, 5, 6, 8] : perDecade > 130 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil(DECADE_LABEL_PIXELS / perDecade));
  const ticks = [];
  for (let power = Math.floor(low); power <= Math.ceil(high); power += 1) {
    for (let digit = 1; digit < 10; digit += 1) {
      const value = Number(`${digit}e${power}`);
      const at = Math.log10(value);
      if (at < low - 1e-9 || at > high + 1e-9) continue;
      const label = labelled.includes(digit) && (digit > 1 || power % every === 0);
      ticks.push({ value, major: digit === 1, label });
    }
  }
  return ticks;
}

function linearTicks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((digit) => digit * power).find((size) => size >= rough);
  const ticks = [];
  for (let index = Math.ceil(low / step); index * step <= high; index += 1) {
    ticks.push({ value: Number((index * step).toPrecision(12)), major: true, label: true });
  }
  return ticks;
}

function plainNumber(value) {
  if (value >= 1e6 || value < 1e-3) return value.toExponential().replace("e+", "e");
  return value.toLocaleString("en-US", { maximumSignificantDigits: 6 });
}

function siNumber(value) {
  const power = Math.max(-3, Math.min(18, 3 * Math.floor(Math.log10(value) / 3 + 1e-9)));
  return `${Number((value / 10 ** power).toPrecision(6))} ${SI_PREFIXES[power]}`.trim();
}
