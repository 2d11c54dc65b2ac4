// Where things are on the map, as a pure function of which things there are.

const cell = 11; // of a node's square and the gap beside it
const gap = 190; // between clusters, where a line has its label
const chip = { w: 170, h: 52, gap: 12 };

const few = 6;
const pair = 2; // chips that have room beside each other in a narrow window

/** crowded tells whether lines to clusters that were not given have no room for labels. */
export const crowded = (clusters) => clusters.filter((c) => !c.named).length > few;

/** layout places clusters: those that can be read in a row or a ring, the others below or, if they are many, on both sides.
    In a narrow window, where they would be too small to read, a few clusters are below each other. */
export function layout(clusters, peerings, narrow) {
  const named = clusters.filter((c) => c.named);
  const strangers = clusters.filter((c) => !c.named);
  const boxes = new Map();
  for (const c of named) boxes.set(c.key, { ...sizeOf(c), x: 0, y: 0 });
  const list = named.map((c) => boxes.get(c.key));
  if (narrow && named.length <= 2) {
    // Strangers above the first and below the last, so that lines do not cross boxes.
    const first = strangers.filter((c) => named.length === 2 && peerings.find((q) => q.b === c.key)?.a === named[0].key);
    const last = strangers.filter((c) => !first.includes(c));
    if (first.length <= pair && last.length <= pair) {
      const chips = (those) => those.map((c) => [c.key, { ...chip, columns: 0, shown: 0 }]);
      stack(boxes, [chips(first), ...named.map((c) => [[c.key, boxes.get(c.key)]]), chips(last)].filter((row) => row.length));
      return { boxes, view: around(boxes) };
    }
  }
  const w = Math.max(...list.map((b) => b.w)), hgt = Math.max(...list.map((b) => b.h));
  let right, bottom;
  if (list.length <= 2) {
    let x = 0;
    for (const b of list) { b.x = x; b.y = (hgt - b.h) / 2; x += b.w + gap; }
    [right, bottom] = [x - gap, hgt];
  } else {
    // Far enough apart that there is room for a label between neighbours.
    const step = Math.hypot(w, hgt) + gap * 0.6;
    const radius = step / 2 / Math.sin(Math.PI / list.length);
    const squeeze = list.length === 3 ? 0.8 : 0.72;
    list.forEach((b, i) => {
      const angle = -Math.PI / 2 + (2 * Math.PI * i) / list.length;
      b.x = radius * (1 + Math.cos(angle)) + w / 2 - b.w / 2;
      b.y = radius * squeeze * (1 + Math.sin(angle)) + hgt / 2 - b.h / 2;
    });
    [right, bottom] = [2 * radius + w, 2 * radius * squeeze + hgt];
  }
  const sides = { left: [], right: [] };
  // Below their peers, in the order of these, so that lines do not cross.
  const parent = (c) => boxes.get(peerings.find((q) => q.b === c.key)?.a) ?? list[0];
  const below = list.length <= 2 && strangers.length <= few ? strangers.toSorted((a, b) => parent(a).x - parent(b).x) : [];
  let free = -Infinity;
  below.forEach((c) => {
    const of = parent(c), siblings = below.filter((o) => parent(o) === of), i = siblings.indexOf(c);
    const x = Math.max(free, of.x + of.w / 2 + (i - (siblings.length - 1) / 2) * (chip.w + 30) - chip.w / 2);
    boxes.set(c.key, { ...chip, columns: 0, shown: 0, x, y: bottom + 130 });
    free = x + chip.w + 30;
  });
  if (!below.length) strangers.forEach((c, i) => {
    const p = peerings.find((q) => q.b === c.key);
    const of = boxes.get(p?.a);
    const side = list.length > 1 && of ? (of.x + of.w / 2 < right / 2 ? "left" : "right") : strangers.length > 3 && i % 2 ? "left" : "right";
    sides[side].push(c);
  });
  const rows = 25;
  for (const [side, those] of Object.entries(sides)) {
    those.forEach((c, i) => {
      const column = Math.floor(i / rows), inColumn = Math.min(rows, those.length - column * rows);
      const out = gap + column * (chip.w + 60);
      boxes.set(c.key, {
        w: chip.w, h: chip.h, columns: 0, shown: 0, side,
        x: side === "left" ? -out - chip.w : right + out,
        y: bottom / 2 + ((i % rows) - (inColumn - 1) / 2) * (chip.h + chip.gap) - chip.h / 2 + (column % 2) * (chip.h + chip.gap) / 2,
      });
    });
  }
  return { boxes, view: around(boxes) };
}

// stack places rows of boxes below each other, each in the middle.
function stack(boxes, rows) {
  let y = 0;
  for (const row of rows) {
    let x = -row.reduce((w, [, b]) => w + b.w + chip.gap, -chip.gap) / 2;
    for (const [key, b] of row) {
      boxes.set(key, { ...b, x, y });
      x += b.w + chip.gap;
    }
    y += Math.max(...row.map(([, b]) => b.h)) + 110;
  }
}

// around is the part of the drawing that holds all boxes.
function around(boxes) {
  const all = [...boxes.values()];
  const x = Math.min(...all.map((b) => b.x)) - 24, y = Math.min(...all.map((b) => b.y)) - 24;
  return { x, y, w: Math.max(...all.map((b) => b.x + b.w)) + 24 - x, h: Math.max(...all.map((b) => b.y + b.h)) + 24 - y };
}

function sizeOf(c) {
  const shown = c.nodes?.length ?? 0;
  const columns = Math.max(18, Math.ceil(Math.sqrt(shown * 2)));
  return { w: columns * cell + 24, h: 86 + Math.max(1, Math.ceil(shown / columns)) * cell, columns, shown };
}

/** nodeAt is where the square of a node is in its box. */
export const nodeAt = (box, i) => ({ x: 12 + (i % box.columns) * cell, y: 74 + Math.floor(i / box.columns) * cell, w: cell - 2.5 });

/** ends are where the line between two boxes leaves them. */
export function ends(a, b) {
  if (b.side) {
    const y = b.y + b.h / 2, at = (box, right, y) => ({ x: right ? box.x + box.w : box.x, y });
    return [at(a, b.side === "right", Math.min(Math.max(y, a.y + 10), a.y + a.h - 10)), at(b, b.side === "left", y)];
  }
  const ca = { x: a.x + a.w / 2, y: a.y + a.h / 2 }, cb = { x: b.x + b.w / 2, y: b.y + b.h / 2 };
  return [leave(a, ca, cb), leave(b, cb, ca)];
}

function leave(box, from, to) {
  const dx = to.x - from.x, dy = to.y - from.y;
  const t = Math.min(dx ? box.w / 2 / Math.abs(dx) : Infinity, dy ? box.h / 2 / Math.abs(dy) : Infinity);
  return Number.isFinite(t) ? { x: from.x + dx * t, y: from.y + dy * t } : { x: from.x + box.w / 2, y: from.y };
}
