import { writeFileSync } from 'node:fs';
import { stripVTControlCharacters } from 'node:util';
import type { Reporter, SerializedError, TestCase, TestModule, Vitest } from 'vitest/node';

/** What came of a run of vitest. */
export interface Results {
  readonly passed: number;
  /** What did not pass, by name, and what it said. */
  readonly failures: readonly Failure[];
}

export interface Failure {
  readonly name: string;
  /** In lines. */
  readonly what: string;
}

/** Of a comparison: more than this is no longer read at a glance. */
const LINES = 24;

/**
 * vitest's reporter `--reporter=<this file> --outputFile.results=<file>`: Results as JSON. A test that was skipped or never came to run
 * counts as failed, for it proves nothing; so does what failed outside of tests, and a run without any.
 */
export default class ResultsReporter implements Reporter {
  #file = '';

  onInit({ config: { outputFile } }: Vitest): void {
    const file = typeof outputFile === 'object' ? outputFile['results'] : undefined;
    if (file === undefined) throw new Error('--outputFile.results is missing');
    this.#file = file;
  }

  onTestRunEnd(modules: readonly TestModule[], unhandled: readonly SerializedError[]): void {
    writeFileSync(this.#file, JSON.stringify(resultsOf(modules, unhandled)));
  }
}

function resultsOf(modules: readonly TestModule[], unhandled: readonly SerializedError[]): Results {
  const tests = modules.flatMap(({ children }) => [...children.allTests()]);
  const passed = tests.filter((test) => test.result().state === 'passed').length;
  const failures = [
    ...modules.flatMap(outsideOfTests),
    ...tests.filter((test) => test.result().state !== 'passed').map(failureOf),
    ...unhandled.map((error) => ({ name: 'outside of all tests', what: told(error) })),
  ];
  const isEmpty = passed === 0 && failures.length === 0;
  return { passed, failures: isEmpty ? [{ name: 'all', what: 'there were no tests' }] : failures };
}

/** A file that could not be loaded, or what was to be done before or after its tests. */
function outsideOfTests(module: TestModule): Failure[] {
  const suites = [...module.children.allSuites()].map((suite) => [suite.fullName, suite.errors()] as const);
  return [[module.relativeModuleId, module.errors()] as const, ...suites].flatMap(([name, errors]) =>
    errors.map((error) => ({ name, what: told(error) })),
  );
}

function failureOf(test: TestCase): Failure {
  const { state, errors } = test.result();
  const what = state === 'failed' ? errors.map(told).join('\n') : state === 'skipped' ? 'was skipped' : 'was not run';
  return { name: `${test.module.relativeModuleId}: ${test.fullName}`, what };
}

/** What it says, and in what the values differ: `-` what was expected, `+` what was there. */
function told({ message, diff }: SerializedError): string {
  const lines = stripVTControlCharacters(typeof diff === 'string' ? diff : '').split('\n');
  const different = lines.filter((line) => /^[-+]/.test(line) && !/^[-+] (Expected|Received)/.test(line));
  const more = different.length > LINES ? [`and ${different.length - LINES} lines more`] : [];
  return [stripVTControlCharacters(message), ...different.slice(0, LINES), ...more].join('\n');
}
