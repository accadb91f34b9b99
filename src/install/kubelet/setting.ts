import { ENDPOINT_KEY, type FileForm, writtenIn } from '../../kubelet/endpoint/configuration.ts';
import { ENDPOINT_FLAG } from '../../kubelet/endpoint/process.ts';
import { withKey } from '../host/yaml-key.ts';

/** Edits the endpoint in the files of kubelet. All other values stay, with comments and order. */

/** The installation needs a manual change first. Nothing was changed. */
export class Refusal extends Error {
  override readonly name = 'Refusal';
  constructor(
    message: string,
    /** The manual remedy. */
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
 * Sets the endpoint in the text of a KubeletConfiguration, or of kubeadm's patch for one. Throws Refusal if the text
 * cannot be edited.
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
  const changed = withKey(text, ENDPOINT_KEY, endpoint);
  if (changed === undefined) throw new Refusal(`${file}: expected one mapping without shared values`, remedy);
  if (endpointIn(changed, file, form) !== endpoint) throw new Refusal(`${file}: cannot be edited`, remedy);
  return changed;
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
  const [from, to] = found.at;
  return text.slice(0, from) + endpoint + text.slice(to);
}
