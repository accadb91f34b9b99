import { readFileSync } from 'node:fs';
import type * as yamlModule from 'yaml';
import * as z from 'zod/mini';
import { errnoOf, messageOf } from '../core/errors/index.ts';
import { ConfigError } from './errors.ts';
import { problemsOf } from './problems.ts';
import { apiVersion, configKeys, kind, schema } from './schema.ts';

/** The configuration file: the settings, plus the two keys that identify its format. */
const fileSchema = z.extend(schema, {
  // Optional: a file without them is read as this version. Later versions must be named.
  apiVersion: z.optional(z.literal(apiVersion)),
  kind: z.optional(z.literal(kind)),
});
const fileKeys = ['apiVersion', 'kind', ...configKeys];

export type Settings = Partial<z.input<typeof schema>>;

type Yaml = typeof yamlModule;
type YamlDocument = ReturnType<Yaml['parseDocument']>;

/**
 * Reads and validates the settings of a YAML file, and returns them as written. Throws ConfigError with file, line, key,
 * value and the allowed values, for every problem found.
 */
export async function readSettings(path: string): Promise<Settings> {
  // The installed file consists of comments, which the library parses more slowly than settings. A `#` in the first column always
  // starts a comment: the continuation lines of strings are indented (YAML 1.2, section 6.1). Line numbers do not change.
  const text = readText(path).replaceAll(/^#.*/gm, '');
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
  return validated(contentOf(document, path), keyOffsets(yaml, document), positionOf);
}

/** Returns the settings in a file's content. Throws ConfigError with every problem, in the order of the file. */
function validated(
  content: unknown,
  offsets: ReadonlyMap<string, number>,
  positionOf: (offset: number | undefined) => string,
): Settings {
  const parsed = fileSchema.safeParse(content);
  if (!parsed.success) {
    const problems = problemsOf(parsed.error, content, fileKeys)
      .map(({ path, text }) => ({ offset: offsets.get(String(path[0])), path, text }))
      .sort((a, b) => (a.offset ?? 0) - (b.offset ?? 0))
      .map(({ offset, path, text }) => [positionOf(offset), ...path.map(String), text].join(': '));
    throw new ConfigError('file', problems);
  }
  const settings = { ...(content as z.input<typeof fileSchema>) };
  delete settings.apiVersion;
  delete settings.kind;
  return settings;
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
    return readFileSync(path, 'utf8');
  } catch (error) {
    const why = { ENOENT: 'no such file', EACCES: 'permission denied', EISDIR: 'is a folder' }[errnoOf(error) ?? ''];
    throw new ConfigError('file', [`${path}: ${why ?? messageOf(error)}; --config expects an existing YAML file`], {
      cause: error,
    });
  }
}
