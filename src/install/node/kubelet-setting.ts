import { isMap, isPair, isScalar, parseDocument, type Scalar } from 'yaml';
import { FLAG, endpointIn } from './kubelet.ts';

/**
 * The endpoint in the files that kubelet is set up by. Only what it is written with changes; every other byte, comments and order
 * among them, stays.
 */

/** What cannot be changed without a person: nothing has been touched. */
export class Refusal extends Error {
  override readonly name = 'Refusal';
  constructor(
    message: string,
    /** What to do by hand. */
    readonly cure: string,
  ) {
    super(message);
  }
}

const KEY = 'containerRuntimeEndpoint';

/**
 * A KubeletConfiguration with this endpoint; undefined: without any. Throws Refusal when the text cannot be changed like that.
 * @param file for errors
 */
export function withEndpoint(text: string, endpoint: string | undefined, file: string): string {
  const cure = `set ${KEY} in ${file} yourself`;
  if (endpoint !== undefined && !/^[\w:/.@-]+$/.test(endpoint))
    throw new Refusal(`${file}: ${JSON.stringify(endpoint)} is no endpoint to be written as it is`, cure);
  const changed = edited(text, endpoint);
  if (changed === undefined) throw new Refusal(`${file}: not laid out as lines of "key: value"`, cure);
  if (endpointIn(changed, file) !== endpoint) throw new Refusal(`${file}: cannot be changed`, cure);
  return changed;
}

function edited(text: string, endpoint: string | undefined): string | undefined {
  const document = parseDocument(text);
  const { contents } = document;
  if (document.errors.length > 0 || !isMap(contents)) return undefined;
  const place = (key: string): Place | undefined => {
    const pair: unknown = contents.items.find(({ key: at }) => isScalar(at) && at.value === key);
    if (!isPair(pair) || !isScalar(pair.key)) return undefined;
    const [start] = pair.key.range ?? [];
    return start === undefined ? undefined : { start, value: isScalar(pair.value) ? pair.value : undefined };
  };
  const written = place(KEY);
  if (contents.flow === true) {
    // JSON, say.
    if (endpoint === undefined) return written === undefined ? text : undefined;
    if (written?.value?.range) return spliced(text, written.value.range, JSON.stringify(endpoint));
    const [start] = contents.range;
    return spliced(text, [start + 1, start + 1], `"${KEY}": "${endpoint}", `);
  }
  if (written !== undefined)
    return endpoint === undefined ? withoutLine(text, written) : replaced(text, written, endpoint);
  const kind = place('kind');
  if (endpoint === undefined || kind?.value === undefined) return endpoint === undefined ? text : undefined;
  return afterLine(text, kind, `${KEY}: ${endpoint}`);
}

interface Place {
  /** Where the key begins. */
  readonly start: number;
  readonly value: Scalar | undefined;
}

function replaced(text: string, { value }: Place, endpoint: string): string | undefined {
  if (!value?.range) return undefined;
  const [from, to] = value.range;
  // `key:` alone: the value is empty, and begins right behind the colon.
  const space = from === to && text[from - 1] === ':' ? ' ' : '';
  return spliced(text, [from, to], `${space}${endpoint}`);
}

const spliced = (text: string, [from, to]: readonly number[], by: string): string =>
  text.slice(0, from) + by + text.slice(to);

function withoutLine(text: string, { start }: Place): string {
  const end = text.indexOf('\n', start);
  return spliced(text, [text.lastIndexOf('\n', start) + 1, end === -1 ? text.length : end + 1], '');
}

function afterLine(text: string, { start }: Place, line: string): string {
  const indent = text.slice(text.lastIndexOf('\n', start) + 1, start);
  const end = text.indexOf('\n', start);
  if (end === -1) return `${text}\n${indent}${line}\n`;
  return spliced(text, [end + 1, end + 1], `${indent}${line}\n`);
}

/** `--flag=value`, `--flag value`, the value quoted or not, the line going on behind a backslash. */
const flagForm = new RegExp(`${FLAG}(?:=|[ \\t]+(?:\\\\\\n[ \\t]*)?)(["']?)([^\\s"'\\\\]+)\\1`, 'g');

/** Each endpoint that a unit's file, a drop-in or an environment file gives by flag; comments do not count. */
export function flagsIn(
  text: string,
): readonly { readonly endpoint: string; readonly at: readonly [number, number] }[] {
  return [...text.matchAll(flagForm)].flatMap((match) => {
    const line = text.slice(text.lastIndexOf('\n', match.index) + 1, match.index);
    if (/^\s*[#;]/.test(line)) return [];
    const [whole, quote = '', endpoint = ''] = match;
    const end = match.index + whole.length - quote.length;
    return [{ endpoint, at: [end - endpoint.length, end] }];
  });
}

/** The text with another endpoint in its one flag. Throws Refusal where there is not just one. */
export function withFlag(text: string, endpoint: string, file: string): string {
  const [found, ...others] = flagsIn(text);
  if (found === undefined || others.length > 0)
    throw new Refusal(
      `${file}: ${FLAG} is there ${others.length === 0 ? 'no more' : 'more than once'}`,
      `set ${FLAG}=${endpoint} yourself`,
    );
  return spliced(text, found.at, endpoint);
}
