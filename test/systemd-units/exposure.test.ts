import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { type Analysis, analysisOf, compare, withPoints } from './exposure.ts';

const empty = 'Exposure: **0**, of 10.\n\n| open | exposure | why |\n|---|---|---|\n\nThe end.\n';
const analysis: Analysis = {
  exposure: 3.1,
  open: [
    { name: 'PrivateNetwork=', description: 'Service has access', exposure: '0.5' },
    { name: 'SystemCallFilter=~@mount', description: 'mount is included', exposure: '0.2' },
  ],
};
const page = withPoints(empty, analysis)
  .replace('| 0.5 |  |', '| 0.5 | API. |')
  .replace('| 0.2 |  |', '| 0.2 | fspick. |');

describe('docs/units.md', () => {
  test('docs/units.md is accepted if it has the exposure and a reason for each open point', () => {
    expect(compare(page, analysis)).toEqual([]);
    // Writing the page again keeps all reasons.
    expect(withPoints(page, analysis)).toBe(page);
    expect(page).toContain('\n\nThe end.\n');
  });

  test('docs/units.md is rejected if its exposure is lower or higher than that of the unit', () => {
    expect(compare(page, { ...analysis, exposure: 3.2 })).toEqual(['the exposure is 3.2, and docs/units.md says 3.1']);
    expect(compare(page, { ...analysis, exposure: 3 })).toEqual([
      'the exposure has fallen to 3: docs/units.md still says 3.1',
    ]);
    expect(compare(empty.replace('**0**', ''), { exposure: 0, open: [] })).toHaveLength(1);
  });

  test('docs/units.md is rejected if an open point has no reason, or a listed point is not open', () => {
    expect(compare(withPoints(empty, analysis), analysis)).toEqual([
      'docs/units.md has no reason why PrivateNetwork= stays open (Service has access)',
      'docs/units.md has no reason why SystemCallFilter=~@mount stays open (mount is included)',
    ]);
    expect(compare(page, { ...analysis, open: analysis.open.slice(1) })).toEqual([
      'docs/units.md: not open any more: | `PrivateNetwork=` | 0.5 | API. |',
    ]);
  });

  test('exposure and open points are read from the output of systemd-analyze', () => {
    const list = JSON.stringify([
      { set: true, name: 'A=', json_field: 'A', description: 'shut', exposure: null },
      { set: false, name: 'B=', json_field: 'B', description: 'open', exposure: '0.2' },
    ]);
    const summary = '→ Overall exposure level for cri-resize-shim.service: 2.9 OK';
    expect(analysisOf(list, summary)).toEqual({
      exposure: 2.9,
      open: [{ name: 'B=', description: 'open', exposure: '0.2' }],
    });
    expect(() => analysisOf(list, 'Failed to load unit')).toThrow('no overall exposure');
  });
});

test('the unit of the service has the settings that kubelet depends on', () => {
  const service = readFileSync('systemd/cri-resize-shim.service', 'utf8').split('\n');
  for (const line of [
    'Type=notify',
    // Every other end counts as a failure, after which the fallback starts the service.
    'Restart=on-success',
    'OnFailure=cri-resize-shim-fallback.service',
    'StartLimitIntervalSec=0',
    'OOMScoreAdjust=-999',
    'Before=kubelet.service k3s.service k3s-agent.service rke2-server.service rke2-agent.service k0sworker.service k0scontroller.service snap.microk8s.daemon-kubelite.service',
  ])
    expect(service).toContain(line);
  // The service does not stop with containerd.
  expect(service.filter((line) => line.includes('containerd.service'))).toEqual(['After=containerd.service']);
});
