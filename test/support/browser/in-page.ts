/**
 * Functions that run in the page, so each one is self-contained. The parts of a browser that they use are declared for
 * this file only, because the rest of the project runs in Node.
 */
interface Style {
  readonly backgroundColor: string;
  readonly color: string;
  readonly display: string;
  readonly fill: string;
  readonly stroke: string;
  readonly strokeDasharray: string;
}

interface Drawn {
  readonly tagName: string;
  readonly textContent: string;
  readonly clientWidth: number;
  readonly scrollWidth: number;
  readonly childNodes: Iterable<{ readonly nodeType: number; readonly textContent: string }>;
  getBoundingClientRect(): { readonly left: number; readonly right: number; readonly width: number };
}

interface DrawnPath extends Drawn {
  getTotalLength(): number;
  getPointAtLength(length: number): { readonly x: number; readonly y: number };
}

declare const document: {
  readonly body: Drawn;
  readonly documentElement: Drawn;
  querySelectorAll(selector: string): Iterable<Drawn>;
};
declare function getComputedStyle(element: Drawn): Style;

export const widthOf = (one: Drawn): number => one.getBoundingClientRect().width;

export const colourOf = (one: Drawn): string => getComputedStyle(one).fill;

/** The style of each line: color and dashes. */
export const strokesOf = (all: readonly Drawn[]): string[] =>
  all.map((one) => `${getComputedStyle(one).stroke} ${getComputedStyle(one).strokeDasharray}`);

/** Returns where a line of a chart of width 400 leaves its initial height, as a share of the width. */
export function firstRise(path: DrawnPath): number {
  const start = path.getPointAtLength(0).y;
  const end = path.getTotalLength();
  let at = 0;
  while (at < end && path.getPointAtLength(at).y === start) at += 0.5;
  return path.getPointAtLength(at).x / 400;
}

/** Returns elements that extend beyond their box or the window. */
export function overflowing(): string[] {
  const { clientWidth: edge, scrollWidth } = document.documentElement;
  const found = scrollWidth > edge ? [`the page is ${scrollWidth} wide`] : [];
  for (const one of document.querySelectorAll('body *')) {
    if (getComputedStyle(one).display === 'inline') continue;
    const { left, right } = one.getBoundingClientRect();
    if (left < 0 || right > edge + 0.5 || one.scrollWidth > one.clientWidth + 1)
      found.push(`${one.tagName} ${one.textContent.slice(0, 60)}`);
  }
  return found;
}

/** Returns text whose contrast with its background is below 4.5 to 1 (WCAG 2.2, 1.4.3). */
export function lowContrast(): string[] {
  const light = (colour: string): number => {
    const parts = (/\((.*)\)/.exec(colour)?.[1] ?? '').split(/[, /]+/).map(Number);
    const [r = 0, g = 0, b = 0] = parts.map((part) =>
      part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4,
    );
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = light(getComputedStyle(document.body).backgroundColor);
  const found: string[] = [];
  for (const one of document.querySelectorAll('body *')) {
    const hasText = [...one.childNodes].some(
      ({ nodeType, textContent }) => nodeType === 3 && textContent.trim() !== '',
    );
    const front = light(getComputedStyle(one).color);
    const contrast = (Math.max(front, behind) + 0.05) / (Math.min(front, behind) + 0.05);
    if (hasText && contrast < 4.5) found.push(`${contrast.toFixed(2)}: ${one.textContent.slice(0, 60)}`);
  }
  return found;
}
