import type * as yamlModule from 'yaml';
import { settingsIn } from './file.ts';
import type { Settings } from './schema.ts';

type Yaml = Pick<typeof yamlModule, 'isMap' | 'isScalar' | 'parseDocument'>;

/** A setting that is true or false. */
type Switch = 'intercept';

/**
 * Returns the text of a configuration file with another value of a switch. Every other byte stays as it is: comments, order and
 * line ends. Returns undefined if the layout of the file does not allow that. Throws ConfigError if the file is invalid.
 * @param path for errors
 */
export async function withSwitch(text: string, key: Switch, value: boolean, path: string): Promise<string | undefined> {
  const { settings } = await settingsIn(text, path);
  if ((settings[key] ?? true) === value) return text;
  const { default: yaml } = await import('yaml');
  const changed = edited(yaml, text, key, String(value));
  if (changed === undefined) return undefined;
  const after = await settingsIn(changed, path).catch(() => undefined);
  return after !== undefined && isOnlyChange(settings, after.settings, key, value) ? changed : undefined;
}

const isOnlyChange = (before: Settings, after: Settings, key: Switch, value: boolean): boolean =>
  JSON.stringify(Object.entries({ ...before, [key]: value }).toSorted()) ===
  JSON.stringify(Object.entries(after).toSorted());

function edited(yaml: Yaml, text: string, key: Switch, value: string): string | undefined {
  const { contents } = yaml.parseDocument(text);
  if (contents !== null && !yaml.isMap(contents) && text.trim() !== '' && !isEmptyScalar(yaml, contents))
    return undefined;
  if (yaml.isMap(contents)) {
    const pair = contents.items.find(({ key: at }) => yaml.isScalar(at) && at.value === key);
    if (pair !== undefined) {
      const range = yaml.isScalar(pair.value) ? pair.value.range : undefined;
      return range ? text.slice(0, range[0]) + value + text.slice(range[1]) : undefined;
    }
    if (contents.flow === true) {
      const [start] = contents.range;
      const rest = contents.items.length > 0 ? ', ' : '';
      return `${text.slice(0, start + 1)}"${key}": ${value}${rest}${text.slice(start + 1)}`;
    }
  }
  return withLine(text, key, value);
}

const isEmptyScalar = ({ isScalar }: Yaml, node: unknown): boolean => isScalar(node) && node.value === null;

/** Adds a line: below the setting that is commented out, as in the installed file, and otherwise at the end. */
function withLine(text: string, key: Switch, value: string): string {
  const end = text.includes('\r\n') ? '\r\n' : '\n';
  const [comment] = new RegExp(`^#${key}:.*$`, 'm').exec(text) ?? [];
  if (comment !== undefined) {
    const at = text.indexOf(comment) + comment.replace(/\r$/, '').length;
    return `${text.slice(0, at)}${end}${key}: ${value}${text.slice(at)}`;
  }
  return `${text}${text === '' || text.endsWith('\n') ? '' : end}${key}: ${value}${end}`;
}
