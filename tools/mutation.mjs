// The suite `mutation`: runs Stryker over the files of stryker.config.js or those given with --mutate. Its report
// (survivors, then a table of the files) is part of the output. Then each file is compared with the threshold, which
// Stryker does only for all files together.
import { existsSync } from 'node:fs';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Stryker } from '@stryker-mutator/core';
import config from '../stryker.config.js';

const root = join(fileURLToPath(import.meta.url), '../..');
const say = (text) => process.stdout.write(`mutation: ${text}\n`);

/** Stryker ignores a file that does not exist, so a moved file would no longer be checked. */
function assertFiles(files) {
  const missing = files.filter((file) => !existsSync(join(root, file)));
  if (missing.length === 0) return;
  say(`no such file: ${missing.join(', ')}`);
  process.exit(1);
}

/**
 * Returns the percentage of a file's mutants that a test has detected, as Stryker counts them; 0 if the file has none.
 */
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
