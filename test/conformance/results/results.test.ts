import { describe, expect, test } from 'vitest';
import type { CampaignResult } from '../campaign.ts';
import type { Outcome, Specs } from './results.ts';
import { compare, focusOn, judge, readReport } from './results.ts';
import { render, succeeded, table } from './table.ts';

function specs(outcomes: Readonly<Record<string, Outcome>>): Specs {
  return new Map(
    Object.entries(outcomes).map(([name, outcome]) => [
      name,
      { name, outcome, reason: `${name} ${outcome}`, seconds: 1 },
    ]),
  );
}

describe('comparing the direct run with the run through the shim', () => {
  test('finds no difference if both runs have the same results, even if specs fail in both', () => {
    const side = specs({ a: 'passed', b: 'failed', c: 'skipped' });
    expect(compare(side, side)).toMatchObject({
      specs: 3,
      passedDirect: 1,
      passedThrough: 1,
      skippedBoth: 1,
      failedBoth: [{ name: 'b' }],
      differences: [],
    });
  });

  test('lists specs that pass in the direct run and fail, are skipped or are missing through the shim', () => {
    const direct = specs({ a: 'passed', b: 'passed', c: 'passed', d: 'passed' });
    const through = specs({ a: 'passed', b: 'failed', c: 'skipped' });
    expect(compare(direct, through).differences).toEqual([
      { name: 'b', direct: 'passed', through: 'failed', reason: 'b failed' },
      { name: 'c', direct: 'passed', through: 'skipped', reason: 'c skipped' },
      { name: 'd', direct: 'passed', through: 'missing', reason: 'it was not run' },
    ]);
  });

  test('lists specs that are skipped in the direct run and fail or are missing through the shim, and counts each pair', () => {
    const direct = specs({ a: 'skipped', b: 'skipped', c: 'skipped', d: 'skipped', e: 'failed' });
    const through = specs({ a: 'failed', c: 'skipped', d: 'passed', e: 'skipped', f: 'passed' });
    const { differences, pairs } = compare(direct, through);
    expect(differences).toEqual([
      { name: 'a', direct: 'skipped', through: 'failed', reason: 'a failed' },
      { name: 'b', direct: 'skipped', through: 'missing', reason: 'it was not run' },
    ]);
    expect([...pairs]).toEqual([
      ['failed, skipped', 1],
      ['missing, passed', 1],
      ['skipped, failed', 1],
      ['skipped, missing', 1],
      ['skipped, passed', 1],
      ['skipped, skipped', 1],
    ]);
  });

  test('does not list specs that fail only in the direct run', () => {
    const result = compare(specs({ a: 'failed' }), specs({ a: 'passed' }));
    expect(result).toMatchObject({ onlyThrough: ['a'], differences: [] });
  });
});

describe('judging differing specs after a second run', () => {
  const first = ['real', 'flaky', 'unsteady'].map((name) => ({
    ...({ name, direct: 'passed', through: 'failed', reason: 'first' } as const),
  }));

  test('a second run separates faults of the shim from chance', () => {
    const direct = specs({ real: 'passed', flaky: 'passed', unsteady: 'failed' });
    const through = specs({ real: 'failed', flaky: 'passed', unsteady: 'failed' });
    expect(judge(first, direct, through)).toEqual({
      real: [{ name: 'real', direct: 'passed', through: 'failed', reason: 'real failed' }],
      flaky: [first[1]],
      unsteady: [first[2]],
    });
  });

  test('counts a spec as failed that the second run through the shim did not reach', () => {
    expect(judge(first.slice(0, 1), specs({ real: 'passed' }), specs({})).real).toHaveLength(1);
  });
});

describe('the focus of a second run', () => {
  test('the focus of a second run matches exactly the given specs', () => {
    const names = ['[k8s.io] A (Default) says "x|y" [Conformance]', 'B'];
    const focus = new RegExp(focusOn(names));
    for (const name of names) expect(focus.test(`CRI validation ${name}`)).toBe(true);
    expect(focus.test('CRI validation [k8s.io] A (Default) says "x|y" [Conformance] twice')).toBe(false);
  });
});

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

const good: CampaignResult = {
  containerd: '2.1',
  runtime: 'runc',
  comparison: {
    specs: 4,
    passedDirect: 2,
    passedThrough: 2,
    skippedBoth: 1,
    failedBoth: [{ name: 'needs iptables', outcome: 'failed', reason: 'refused\nat some line', seconds: 60 }],
    onlyThrough: [],
    pairs: new Map([['passed, passed', 2]]),
    differences: [],
  },
  verdict: { real: [], flaky: [], unsteady: [] },
  checks: [{ name: 'crictl version', ms: 400, failure: null }],
  seconds: 300,
};

describe('the result of a conformance run', () => {
  test('a conformance run succeeds if nothing differs, even if specs fail on both sides', () => {
    expect(succeeded([good])).toBe(true);
    expect(render([good])).toContain('needs iptables\n    refused');
  });

  test('a conformance run fails, and reports the reason, if a spec passes only without the shim', () => {
    const difference = {
      name: 'exec works',
      direct: 'passed' as const,
      through: 'failed' as const,
      reason: 'Unavailable',
    };
    const bad = { ...good, verdict: { ...good.verdict, real: [difference] } };
    expect(succeeded([good, bad])).toBe(false);
    expect(render([bad])).toContain('exec works\n    Unavailable');
  });

  test('a conformance run fails, with the reason, if a client gets an unexpected result', () => {
    const bad = { ...good, checks: [{ name: 'ctr events', ms: 1, failure: 'printed nothing' }] };
    expect(succeeded([bad])).toBe(false);
    expect(render([bad])).toContain('ctr events\n    printed nothing');
  });

  test('a conformance run succeeds if a spec differed by chance, and reports the spec', () => {
    const difference = { name: 'stats', direct: 'passed' as const, through: 'failed' as const, reason: 'too early' };
    const lucky = { ...good, verdict: { ...good.verdict, flaky: [difference] } };
    expect(succeeded([lucky])).toBe(true);
    expect(render([lucky])).toContain('differed once, and not when run alone\n  stats');
  });

  test('the result of a conformance run is a table in columns', () => {
    expect(table(['a', 'bb'], [['long', 1]])).toBe('a     bb\nlong  1');
  });
});
