/** Names further than this from each other are not similar: edits, of at least three characters each. */
const MAX_EDITS = 2;

/** Longer names are not compared: the time grows with the product of both lengths, and a caller may give any name. */
const LONGEST = 64;

/**
 * Returns the name that is most similar to the given one. Undefined if none is.
 * @param names the existing names
 * @param simplify returns what of a name is compared, such as the name in lower case
 */
export function nearest(
  given: string,
  names: readonly string[],
  simplify = (name: string): string => name,
): string | undefined {
  if (given.length > LONGEST) return undefined;
  const simple = simplify(given);
  const near = [...new Set(names)]
    .filter((name) => name.length <= LONGEST)
    .map((name) => ({ name, simplified: simplify(name) }))
    .map(({ name, simplified }) => ({ name, simplified, edits: distance(simple, simplified) }))
    .filter(
      ({ name, simplified, edits }) =>
        edits <= Math.min(MAX_EDITS, Math.ceil(simplified.length / 3)) || isPart(given, name),
    )
    .sort((one, other) => one.edits - other.edits || (one.name < other.name ? -1 : 1));
  return near[0]?.name;
}

/** Returns `: did you mean web?` for the name that is most similar to the given one; an empty string if none is. */
export function suggestion(given: string, names: readonly string[]): string {
  const name = nearest(given, names);
  return name === undefined ? '' : `: did you mean ${name}?`;
}

const isPart = (given: string, name: string): boolean => given.length >= 3 && name.includes(given);

/** Returns how many characters have to be inserted, removed or replaced (Levenshtein distance, by rows). */
function distance(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, index) => index);
  for (let index = 0; index < one.length; index += 1) {
    const next = [index + 1];
    for (let place = 0; place < other.length; place += 1) {
      const [left = 0, above = 0, diagonal = 0] = [next[place], row[place + 1], row[place]];
      next.push(Math.min(left + 1, above + 1, diagonal + (one[index] === other[place] ? 0 : 1)));
    }
    row = next;
  }
  return row[other.length] ?? 0;
}
