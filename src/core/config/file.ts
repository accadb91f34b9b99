import { readFileSync, statSync } from 'node:fs';
import type * as yamlModule from 'yaml';
import * as z from 'zod/mini';
import { errnoOf, messageOf } from '../errors.ts';
import { ConfigError, type Problem, problemsOf, type UsableSettings } from './errors.ts';
import { apiVersion, configKeys, kind, type Settings, schema } from './schema.ts';

/** The configuration file: the settings, plus the two keys that identify its format. */
const fileSchema = z.extend(schema, {
  // Optional: a file without them is read as this version. Later versions must be named.
  apiVersion: z.optional(z.literal(apiVersion)),
  kind: z.optional(z.literal(kind)),
});
const fileKeys = ['apiVersion', 'kind', ...configKeys];

/** The settings of a file. */
export interface FileSettings {
  /** As written. */
  readonly settings: Settings;
  /** Returns the line of a key that the file has, from 1. */
  readonly lineOf: (key: string) => number | undefined;
}

type Yaml = typeof yamlModule;
type YamlDocument = ReturnType<Yaml['parseDocument']>;

/**
 * Reads and validates the settings of a YAML file. Throws ConfigError with file, line, key, value and the allowed
 * values, for every problem found.
 */
export async function readSettings(path: string): Promise<FileSettings> {
  return settingsIn(readText(path), path);
}

/** Validates the text of a YAML file like {@link readSettings}. @param path for errors */
export async function settingsIn(written: string, path: string): Promise<FileSettings> {
  // The installed file consists of comments, which the library parses more slowly than settings. A `#` in the first
  // column always starts a comment: the continuation lines of strings are indented (YAML 1.2, section 6.1). Line
  // numbers do not change.
  const text = written.replaceAll(/^#.*/gm, '');
  // An unchanged file of the installation: loading and running the library takes 17 ms of each start.
  if (withoutEmptyLines(text) === `apiVersion: ${apiVersion}\nkind: ${kind}`)
    return { settings: {}, lineOf: () => undefined };
  // Loaded only if there is a file: most nodes are configured by flags, and kubelet waits for our first response.
  // Through the default export: the package is CommonJS, and a bundle in chunks does not have its named exports.
  const { default: yaml } = await import('yaml');
  const lines = new yaml.LineCounter();
  const document = yaml.parseDocument(text, { lineCounter: lines, prettyErrors: false });
  const positionOf = (offset: number | undefined): string =>
    offset === undefined ? path : `${path}:${lines.linePos(offset).line}:${lines.linePos(offset).col}`;
  const syntaxProblems = [...document.errors, ...document.warnings];
  if (syntaxProblems.length > 0) {
    const problems = syntaxProblems.map(({ pos, message }) => `${positionOf(pos[0])}: not valid YAML: ${message}`);
    throw new ConfigError('file', problems);
  }
  const offsets = keyOffsets(yaml, document);
  const lineOf = (key: string): number | undefined => {
    const offset = offsets.get(key);
    return offset === undefined ? undefined : lines.linePos(offset).line;
  };
  return { settings: validated(contentOf(document, path), offsets, positionOf), lineOf };
}

const withoutEmptyLines = (text: string): string =>
  text
    .split('\n')
    .filter((line) => line !== '')
    .join('\n');

/** Returns the settings in a file's content. Throws ConfigError with every problem, in the order of the file. */
function validated(
  content: unknown,
  offsets: ReadonlyMap<string, number>,
  positionOf: (offset: number | undefined) => string,
): Settings {
  const parsed = fileSchema.safeParse(content);
  if (!parsed.success) {
    const found = problemsOf(parsed.error, content, fileKeys);
    const problems = found
      .map(({ path, text }) => ({ offset: offsets.get(String(path[0])), path, text }))
      .sort((a, b) => (a.offset ?? 0) - (b.offset ?? 0))
      .map(({ offset, path, text }) => [positionOf(offset), ...path.map(String), text].join(': '));
    throw new ConfigError('file', problems, { usable: usableOf(content, found) });
  }
  const settings = { ...(content as z.input<typeof fileSchema>) };
  delete settings.apiVersion;
  delete settings.kind;
  return settings;
}

/** Returns the settings that no problem concerns. */
function usableOf(content: unknown, problems: readonly Problem[]): UsableSettings {
  const bad = new Set(problems.map(({ path }) => String(path[0])));
  const written = typeof content === 'object' && content !== null ? Object.entries(content) : [];
  const known: ReadonlySet<string> = new Set(fileKeys);
  return {
    settings: Object.fromEntries(written.filter(([key]) => configKeys.some((other) => other === key) && !bad.has(key))),
    hasUnknownKeys: written.some(([key]) => !known.has(key)),
    isTokenInvalid: bad.has('metricsTokenFile'),
  };
}

/** The offset of each top-level key. */
function keyOffsets(
  { isPair, visit }: Pick<Yaml, 'isPair' | 'visit'>,
  document: YamlDocument,
): ReadonlyMap<string, number> {
  const offsets = new Map<string, number>();
  visit(document, {
    Pair(_, pair, ancestors) {
      if (ancestors.length !== 2) return visit.SKIP;
      const key = pair.key as { value?: unknown; range?: [number, number, number] };
      if (isPair(pair) && key.range !== undefined) offsets.set(String(key.value), key.range[0]);
      return undefined;
    },
  });
  return offsets;
}

function contentOf(document: YamlDocument, path: string): unknown {
  try {
    return (document.toJS() as unknown) ?? {};
  } catch (error) {
    // Aliases that expand beyond the library's limit.
    throw new ConfigError('file', [`${path}: cannot be read: ${messageOf(error)}`], { cause: error });
  }
}

function readText(path: string): string {
  try {
    // Its open would wait for a writer, and with it the start of the shim.
    if (statSync(path).isFIFO()) throw new Error('is a FIFO');
    return readFileSync(path, 'utf8');
  } catch (error) {
    const why = { ENOENT: 'no such file', EACCES: 'permission denied', EISDIR: 'is a folder' }[errnoOf(error) ?? ''];
    throw new ConfigError('file', [`${path}: ${why ?? messageOf(error)}; --config expects an existing YAML file`], {
      cause: error,
    });
  }
}
