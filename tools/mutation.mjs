// npm run mutation: Stryker, over the files that stryker.config.js lists or those given with --mutate. Its report (survivors, then a
// table of the files) stays in the output; then each file is held to the threshold by itself, which Stryker does only for all together.
import { existsSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Stryker } from '@stryker-mutator/core';
import config from '../stryker.config.js';

const root = join(fileURLToPath(import.meta.url), '../..');
const say = (text) => process.stdout.write(`mutation: ${text}\n`);

/** Stryker passes over a file that is not there; one that has moved would no longer be held to anything. */
function assertFiles(files) {
  const missing = files.filter((file) => !existsSync(join(root, file)));
  if (missing.length === 0) return;
  say(`no such file: ${missing.join(', ')}`);
  process.exit(1);
}

/** Percent of a file's mutants that a test has noticed, as Stryker counts them; 0 when the file has none. */
function scoreOf(results) {
  const count = (...statuses) => results.filter(({ status }) => statuses.includes(status)).length;
  const noticed = count('Killed', 'Timeout');
  return (100 * noticed) / Math.max(1, noticed + count('Survived', 'NoCoverage'));
}

const { values } = parseArgs({ options: { mutate: { type: 'string', multiple: true } } });
const files = values.mutate ?? config.mutate;
assertFiles(files);
const results = await new Stryker({ mutate: files }).runMutationTest();
let failed = 0;
for (const file of files) {
  const score = scoreOf(results.filter(({ fileName }) => relative(root, fileName) === file));
  const isEnough = score >= config.thresholds.break;
  if (!isEnough) failed += 1;
  say(`${file}: ${score.toFixed(1)} %${isEnough ? '' : `, FAILED: less than ${config.thresholds.break}`}`);
}
say(`${files.length - failed} passed, ${failed} failed`);
if (failed > 0) process.exitCode = 1;
