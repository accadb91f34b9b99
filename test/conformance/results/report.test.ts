import { describe, expect, test } from 'vitest';
import { readReport } from './report.ts';

interface Entry {
  readonly type?: string;
  readonly text: string;
  readonly state: string;
  readonly message?: string;
}

function report(...entries: readonly Entry[]): string {
  const SpecReports = entries.map(({ type = 'It', text, state, message }) => ({
    ContainerHierarchyTexts: type === 'It' ? ['[k8s.io] Container', 'log'] : null,
    LeafNodeType: type,
    LeafNodeText: text,
    State: state,
    RunTime: 1_500_000_000,
    ...(message !== undefined && { Failure: { Message: message } }),
  }));
  return JSON.stringify([{ SuiteDescription: 'CRI validation', SpecReports }]);
}

describe("reading ginkgo's report", () => {
  test('returns specs by full name with their outcome', () => {
    const specs = readReport(
      report(
        { type: 'BeforeSuite', text: '', state: 'passed' },
        { text: 'is written', state: 'passed' },
        { text: 'is reopened', state: 'failed', message: 'no log' },
        { text: 'panics', state: 'panicked' },
        { text: 'needs AppArmor', state: 'skipped', message: 'AppArmor is disabled' },
      ),
    );
    expect([...specs.values()].map(({ name, outcome, reason }) => [name, outcome, reason])).toEqual([
      ['[k8s.io] Container log is written', 'passed', ''],
      ['[k8s.io] Container log is reopened', 'failed', 'no log'],
      ['[k8s.io] Container log panics', 'failed', ''],
      ['[k8s.io] Container log needs AppArmor', 'skipped', 'AppArmor is disabled'],
    ]);
    expect(specs.get('[k8s.io] Container log is written')?.seconds).toBe(1.5);
  });

  test('omits specs that a focus excluded', () => {
    expect(readReport(report({ text: 'other', state: 'skipped' })).size).toBe(0);
  });

  test('rejects the report of a suite that could not start', () => {
    const text = report({ type: 'BeforeSuite', text: '', state: 'failed', message: 'no images file' });
    expect(() => readReport(text)).toThrow("the suite's BeforeSuite failed: no images file");
  });

  test('rejects a text that is not a report', () => {
    expect(() => readReport('{}')).toThrow();
  });
});
