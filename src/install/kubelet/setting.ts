import { type Scalar, isMap, isPair, isScalar, parseDocument } from 'yaml';
import { ENDPOINT_FLAG } from '../../kubelet/endpoint/process.ts';
import { ENDPOINT_KEY, type FileForm, writtenIn } from '../../kubelet/endpoint/configuration.ts';

/** Edits the endpoint in the files of kubelet. Every other byte stays unchanged, including comments and order. */

/** The installation needs a manual change first. Nothing was changed. */
export class Refusal extends Error {
  override readonly name = 'Refusal';
  constructor(
    message: string,
    /** What to do manually. */
    readonly remedy: string,
  ) {
    super(message);
  }
}

/**
 * Returns the endpoint in the text of a file; undefined if it sets none. Throws if kubelet could not read the text.
 * @param file for errors
 */
export function endpointIn(text: string, file: string, form: FileForm = 'config'): string | undefined {
  const written = writtenIn(text, file, form);
  return typeof written === 'string' ? undefined : written.endpoint;
}

/**
 * Sets the endpoint in the text of a KubeletConfiguration, or of kubeadm's patch for one. Throws Refusal if the text cannot be edited.
 * @param endpoint undefined removes the setting
 * @param file for errors
 */
export function withEndpoint(
  text: string,
  endpoint: string | undefined,
  file: string,
  form: FileForm = 'config',
): string {
  const remedy = `set ${ENDPOINT_KEY} in ${file} manually`;
  if (endpoint !== undefined && !/^[\w:/.@-]+$/.test(endpoint))
    throw new Refusal(`${file}: endpoint ${JSON.stringify(endpoint)} cannot be written without quotes`, remedy);
  const changed = edited(text, endpoint);
  if (changed === undefined) throw new Refusal(`${file}: unsupported layout, expected lines of "key: value"`, remedy);
  if (endpointIn(changed, file, form) !== endpoint) throw new Refusal(`${file}: cannot be edited`, remedy);
  return changed;
}

function edited(text: string, endpoint: string | undefined): string | undefined {
  const document = parseDocument(text);
  const { contents } = document;
  if (document.errors.length > 0) return undefined;
  // A patch may have no fields yet.
  if (contents === null)
    return endpoint === undefined ? text : `${text}${newlineAfter(text)}${ENDPOINT_KEY}: ${endpoint}\n`;
  if (!isMap(contents)) return undefined;
  const place = (key: string): Place | undefined => {
    const pair: unknown = contents.items.find(({ key: at }) => isScalar(at) && at.value === key);
    if (!isPair(pair) || !isScalar(pair.key)) return undefined;
    const [start] = pair.key.range ?? [];
    return start === undefined ? undefined : { start, value: isScalar(pair.value) ? pair.value : undefined };
  };
  const written = place(ENDPOINT_KEY);
  if (contents.flow === true) {
    // Flow style, for example JSON.
    if (endpoint === undefined) return written === undefined ? text : undefined;
    if (written?.value?.range) return spliced(text, written.value.range, JSON.stringify(endpoint));
    const [start] = contents.range;
    const comma = contents.items.length === 0 ? '' : ', ';
    return spliced(text, [start + 1, start + 1], `"${ENDPOINT_KEY}": "${endpoint}"${comma}`);
  }
  if (written !== undefined)
    return endpoint === undefined ? withoutLine(text, written) : replaced(text, written, endpoint);
  if (endpoint === undefined) return text;
  const kind = place('kind');
  if (kind?.value !== undefined) return afterLine(text, kind, `${ENDPOINT_KEY}: ${endpoint}`);
  const [start] = contents.range;
  return beforeLine(text, start, `${ENDPOINT_KEY}: ${endpoint}`);
}

const newlineAfter = (text: string): string => (text === '' || text.endsWith('\n') ? '' : '\n');

interface Place {
  /** Offset of the key. */
  readonly start: number;
  readonly value: Scalar | undefined;
}

function replaced(text: string, { value }: Place, endpoint: string): string | undefined {
  if (!value?.range) return undefined;
  const [from, to] = value.range;
  // For `key:` without a value, the empty value starts directly after the colon.
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

/** @param start where the first key of the map begins */
function beforeLine(text: string, start: number, line: string): string {
  const begin = text.lastIndexOf('\n', start - 1) + 1;
  const indent = text.slice(begin, start);
  return spliced(text, [begin, begin], `${indent}${line}\n`);
}

/** `--flag=value` or `--flag value`, with or without quotes, also with a backslash at the end of the line. */
const flagForm = new RegExp(`${ENDPOINT_FLAG}(?:=|[ \\t]+(?:\\\\\\n[ \\t]*)?)(["']?)([^\\s"'\\\\]+)\\1`, 'g');

/** Finds all flags with an endpoint in a unit file, drop-in or environment file. Ignores comments. */
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

/** Replaces the endpoint in the only flag of a text. Throws Refusal unless there is exactly one. */
export function withFlag(text: string, endpoint: string, file: string): string {
  const [found, ...others] = flagsIn(text);
  if (found === undefined || others.length > 0)
    throw new Refusal(
      `${file}: ${ENDPOINT_FLAG} ${others.length === 0 ? 'is missing' : 'occurs more than once'}`,
      `set ${ENDPOINT_FLAG}=${endpoint} manually`,
    );
  return spliced(text, found.at, endpoint);
}
