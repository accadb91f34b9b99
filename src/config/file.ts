import { readFileSync } from 'node:fs';
import * as z from 'zod/mini';
import { errnoOf, messageOf } from '../core/errors/index.ts';
import { ConfigError } from './errors.ts';
import { faultsOf } from './faults.ts';
import { apiVersion, configKeys, kind, schema } from './schema.ts';

/** The whole file: the settings, and the two keys that say what file this is. */
const fileSchema = z.extend(schema, {
  // Optional: a file without them is read as this version. A later version will have to be named.
  apiVersion: z.optional(z.literal(apiVersion)),
  kind: z.optional(z.literal(kind)),
});
const fileKeys = ['apiVersion', 'kind', ...configKeys];

export type Settings = Partial<z.input<typeof schema>>;

/**
 * Reads the settings of a YAML file, as they stand in it; checked. Throws ConfigError with file, line, key, value and
 * what is allowed, for every fault found.
 */
export async function readSettings(path: string): Promise<Settings> {
  // As it is installed, the file is all comments, and the library would take longer for them than for the settings. What begins with # in the
  // first column is a comment wherever it stands: texts over several lines are further in (YAML 1.2, section 6.1). Lines keep their numbers.
  const text = readText(path).replaceAll(/^#.*/gm, '');
  // Loaded only where there is a file: most nodes are set up by flags, and kubelet waits for our first answer.
  // By its default export: it is CommonJS, whose names a bundle in chunks does not have.
  const { default: yaml } = await import('yaml');
  const { LineCounter, isPair, parseDocument, visit } = yaml;
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines, prettyErrors: false });
  const at = (offset: number | undefined): string =>
    offset === undefined ? path : `${path}:${lines.linePos(offset).line}:${lines.linePos(offset).col}`;
  const problems = [...document.errors, ...document.warnings];
  if (problems.length > 0) {
    const faults = problems.map((problem) => `${at(problem.pos[0])}: not valid YAML: ${problem.message}`);
    throw new ConfigError('file', faults);
  }

  const offsets = new Map<string, number>();
  visit(document, {
    Pair(_, pair, ancestors) {
      if (ancestors.length !== 2) return visit.SKIP;
      const key = pair.key as { value?: unknown; range?: [number, number, number] };
      if (isPair(pair) && key.range !== undefined) offsets.set(String(key.value), key.range[0]);
      return undefined;
    },
  });
  const content: unknown = readContent(document, path) ?? {};
  const parsed = fileSchema.safeParse(content);
  if (!parsed.success) {
    const faults = faultsOf(parsed.error, content, fileKeys)
      .map(({ path: keys, text: fault }) => ({ offset: offsets.get(String(keys[0])), keys, fault }))
      .sort((a, b) => (a.offset ?? 0) - (b.offset ?? 0));
    throw new ConfigError(
      'file',
      faults.map(({ offset, keys, fault }) => [at(offset), ...keys.map(String), fault].join(': ')),
    );
  }
  const settings = { ...(content as z.input<typeof fileSchema>) };
  delete settings.apiVersion;
  delete settings.kind;
  return settings;
}

function readContent(document: { toJS(): unknown }, path: string): unknown {
  try {
    return document.toJS();
  } catch (error) {
    // Aliases that expand to more than the library allows.
    throw new ConfigError('file', [`${path}: not usable: ${messageOf(error)}`], { cause: error });
  }
}

function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    const why = { ENOENT: 'no such file', EACCES: 'may not be read', EISDIR: 'is a folder' }[errnoOf(error) ?? ''];
    throw new ConfigError('file', [`${path}: ${why ?? messageOf(error)}; give --config an existing YAML file`], {
      cause: error,
    });
  }
}
