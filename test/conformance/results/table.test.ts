import { describe, expect, test } from 'vitest';
import type { CampaignResult } from '../campaign.ts';
import { render, succeeded, table } from './table.ts';

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

  test('a conformance run fails, with the reason, if a spec passes only directly', () => {
    const difference = { name: 'exec works', through: 'failed' as const, reason: 'Unavailable' };
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
    const difference = { name: 'stats', through: 'failed' as const, reason: 'too early' };
    const lucky = { ...good, verdict: { ...good.verdict, flaky: [difference] } };
    expect(succeeded([lucky])).toBe(true);
    expect(render([lucky])).toContain('passed through the shim when run alone\n  stats');
  });

  test('the result of a conformance run is a table in columns', () => {
    expect(table(['a', 'bb'], [['long', 1]])).toBe('a     bb\nlong  1');
  });
});
