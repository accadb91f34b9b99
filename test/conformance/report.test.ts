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
  test('names specs in full, with what became of them', () => {
    const specs = readReport(
      report(
        { type: 'BeforeSuite', text: '', state: 'passed' },
        { text: 'is kept', state: 'passed' },
        { text: 'is reopened', state: 'failed', message: 'no log' },
        { text: 'panics', state: 'panicked' },
        { text: 'needs AppArmor', state: 'skipped', message: 'AppArmor is disabled' },
      ),
    );
    expect([...specs.values()].map(({ name, outcome, reason }) => [name, outcome, reason])).toEqual([
      ['[k8s.io] Container log is kept', 'passed', ''],
      ['[k8s.io] Container log is reopened', 'failed', 'no log'],
      ['[k8s.io] Container log panics', 'failed', ''],
      ['[k8s.io] Container log needs AppArmor', 'skipped', 'AppArmor is disabled'],
    ]);
    expect(specs.get('[k8s.io] Container log is kept')?.seconds).toBe(1.5);
  });

  test('leaves out what a focus left out', () => {
    expect(readReport(report({ text: 'other', state: 'skipped' })).size).toBe(0);
  });

  test('does not take a suite that could not start for one without failures', () => {
    const text = report({ type: 'BeforeSuite', text: '', state: 'failed', message: 'no images file' });
    expect(() => readReport(text)).toThrow("critest's BeforeSuite failed: no images file");
  });

  test('refuses what is no report', () => {
    expect(() => readReport('{}')).toThrow();
  });
});
