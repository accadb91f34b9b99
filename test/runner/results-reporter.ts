import { appendFileSync, writeFileSync } from 'node:fs';
import { stripVTControlCharacters } from 'node:util';
import type { Reporter, SerializedError, TestCase, TestModule, TestSpecification, Vitest } from 'vitest/node';

/** The outcome of a run of vitest. */
export interface Results {
  readonly passed: number;
  /** Tests that did not pass, and errors outside of tests. */
  readonly failures: readonly Failure[];
}

export interface Failure {
  readonly name: string;
  /** The error message; it may have several lines. */
  readonly what: string;
}

/** A line of the progress file, as JSON: a failure as soon as it happens, or a test file that has ended. */
export type Progress = { readonly failure: Failure } | { readonly file: FileProgress };

export interface FileProgress {
  readonly name: string;
  readonly passed: number;
  readonly failed: number;
  /** Files that have ended, including this one. */
  readonly ended: number;
  /** Files of the whole run. */
  readonly files: number;
}

/** Limit of lines for a comparison of values. */
const LINES = 24;

/**
 * vitest's reporter `--reporter=<this file> --outputFile.results=FILE [--outputFile.progress=FILE]`. At the end it
 * writes Results as JSON. Meanwhile it appends a line of Progress for each file and each failure. A test that was
 * skipped or never ran counts as failed, because it proves nothing. So do errors outside of tests, and a run without
 * tests. With a test name pattern, tests that do not match are not part of the run; vitest matches it with the names of
 * suites and test, separated by ` > `.
 */
export default class ResultsReporter implements Reporter {
  #results = '';
  #progress: string | undefined;
  #pattern: RegExp | undefined;
  #files = 0;
  #ended = 0;
  readonly #reported = new Set<string>();

  onInit({ config: { outputFile, testNamePattern } }: Vitest): void {
    const files: Readonly<Record<string, string | undefined>> = typeof outputFile === 'object' ? outputFile : {};
    const { results, progress } = files;
    if (results === undefined) throw new Error('--outputFile.results is missing');
    this.#results = results;
    this.#progress = progress;
    this.#pattern = testNamePattern;
  }

  onTestRunStart(specifications: readonly TestSpecification[]): void {
    this.#files = specifications.length;
  }

  onTestCaseResult(test: TestCase): void {
    if (test.result().state === 'failed') this.#report(failureOf(test));
  }

  onTestModuleEnd(module: TestModule): void {
    const { passed, failures } = resultsOf([module], this.#pattern);
    // Adds errors outside of tests, and tests that did not run.
    for (const failure of failures) this.#report(failure);
    this.#ended += 1;
    const counts = { passed, failed: failures.length, ended: this.#ended, files: this.#files };
    this.#append({ file: { name: module.relativeModuleId, ...counts } });
  }

  onTestRunEnd(modules: readonly TestModule[], unhandled: readonly SerializedError[]): void {
    const { passed, failures } = resultsOf(modules, this.#pattern);
    const all = [...failures, ...unhandled.map((error) => ({ name: 'outside of all tests', what: messageOf(error) }))];
    const isEmpty = passed === 0 && all.length === 0 && this.#pattern === undefined;
    const results: Results = { passed, failures: isEmpty ? [{ name: 'all', what: 'there were no tests' }] : all };
    writeFileSync(this.#results, JSON.stringify(results));
  }

  #report(failure: Failure): void {
    const key = JSON.stringify(failure);
    if (this.#reported.has(key)) return;
    this.#reported.add(key);
    this.#append({ failure });
  }

  #append(progress: Progress): void {
    if (this.#progress !== undefined) appendFileSync(this.#progress, `${JSON.stringify(progress)}\n`);
  }
}

function resultsOf(modules: readonly TestModule[], pattern: RegExp | undefined): Results {
  const tests = modules
    .flatMap(({ children }) => [...children.allTests()])
    .filter((test) => pattern === undefined || pattern.test(test.fullName));
  const passed = tests.filter((test) => test.result().state === 'passed').length;
  const failures = [
    ...modules.flatMap(outsideOfTests),
    ...tests.filter((test) => test.result().state !== 'passed').map(failureOf),
  ];
  return { passed, failures };
}

/** Errors of a file that could not be loaded, and of hooks before or after all tests. */
function outsideOfTests(module: TestModule): Failure[] {
  const suites = [...module.children.allSuites()].map((suite) => [suite.fullName, suite.errors()] as const);
  return [[module.relativeModuleId, module.errors()] as const, ...suites].flatMap(([name, errors]) =>
    errors.map((error) => ({ name, what: messageOf(error) })),
  );
}

function failureOf(test: TestCase): Failure {
  const { state, errors } = test.result();
  const what =
    state === 'failed' ? errors.map(messageOf).join('\n') : state === 'skipped' ? 'was skipped' : 'was not run';
  return { name: `${test.module.relativeModuleId}: ${test.fullName}`, what };
}

/** Returns the message, and the lines in which the values differ: `-` is expected, `+` is found. */
function messageOf({ message, diff }: SerializedError): string {
  const lines = stripVTControlCharacters(typeof diff === 'string' ? diff : '').split('\n');
  const different = lines.filter((line) => /^[-+]/.test(line) && !/^[-+] (Expected|Received)/.test(line));
  const more = different.length > LINES ? [`and ${different.length - LINES} lines more`] : [];
  return [stripVTControlCharacters(message), ...different.slice(0, LINES), ...more].join('\n');
}

export interface Counts {
  readonly passed: number;
  readonly failed: number;
}

/**
 * Returns the counts of the last line `N passed, N failed` or `NAME: N passed, N failed` of a command's output. A
 * command that fails without counting a failure counts as one failure.
 */
export function countsIn(output: string, exitCode: number | undefined): Counts {
  const last = [...output.matchAll(/^(?:.*: )?(\d+) passed, (\d+) failed$/gm)].at(-1);
  const [passed, failed] = [Number(last?.[1] ?? 0), Number(last?.[2] ?? 0)];
  return { passed, failed: failed === 0 && (exitCode !== 0 || last === undefined) ? 1 : failed };
}

/** Tables that commands write into pages of docs/. */

/** Returns rows as a Markdown table. The first row is the head. */
export function markdownTable([head = [], ...rows]: readonly (readonly string[])[]): string {
  return [head, head.map(() => '---'), ...rows].map((cells) => `| ${cells.join(' | ')} |`).join('\n');
}

/** Returns the page with this text between the marks of a command. Throws if the page does not have them. */
export function withTable(page: string, command: string, text: string): string {
  const [begin, end] = [`<!-- ${command}: begin -->`, `<!-- ${command}: end -->`];
  const [from, to] = [page.indexOf(begin), page.indexOf(end)];
  if (from < 0 || to < from) throw new Error(`the page lacks the marks ${begin} and ${end}`);
  return `${page.slice(0, from + begin.length)}\n\n${text}\n\n${page.slice(to)}`;
}
