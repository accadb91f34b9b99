import { describe, expect, test } from 'vitest';
import { type Finding, worstOf } from '../../../src/install/node/finding.ts';
import { afterInstall, unrepaired } from '../../../src/resizectl/commands/install.ts';

test('an upgrade ends with both versions, what to do next, and how to undo it', () => {
  expect(afterInstall({ versions: 'upgrade 0.1.0 to 0.2.0' })).toBe(
    [
      'upgrade done: 0.1.0 to 0.2.0',
      'next: resizectl doctor checks this node; resizectl get pods lists its pods',
      'undo: run resizectl install of 0.1.0, or resizectl uninstall removes the shim; pods keep running',
      '',
    ].join('\n'),
  );
});

test.each([{}, { versions: 'install 0.2.0' }, { versions: 'another build of 0.2.0' }])(
  'an installation that is no upgrade says what to do next: %j',
  (versions) => {
    expect(afterInstall(versions)).toBe(
      'next: resizectl doctor checks this node; resizectl get pods lists its pods\n' +
        'undo: resizectl uninstall removes the shim; pods keep running\n',
    );
  },
);

describe('an installation is not kept from repairing what the checks have found:', () => {
  const failed = (check: string): Finding => ({ check, result: 'failed', found: '', remedy: 'x' });
  const blocked = (checks: readonly string[], isConfigGiven = false): boolean =>
    worstOf(unrepaired(checks.map(failed), { isConfigGiven })) === 'failed';

  test('a kubelet that has no runtime, and ends again after each start for it', () => {
    expect(blocked(['kubelet', 'kubelet runtime'])).toBe(false);
    expect(blocked(['kubelet'])).toBe(true);
    expect(blocked(['kubelet runtime', 'containerd'])).toBe(true);
  });

  test('a kubelet that uses the shim, and ends again after each start while the shim answers', () => {
    const loop: Finding = { ...failed('kubelet'), isLoopAtShim: true };
    const isBlocked = (...findings: Finding[]): boolean =>
      worstOf(unrepaired(findings, { isConfigGiven: false })) === 'failed';
    expect(isBlocked(loop)).toBe(false);
    expect(isBlocked(loop, failed('containerd'))).toBe(true);
  });

  test('an invalid configuration, if another one is given', () => {
    expect(blocked(['configuration'])).toBe(true);
    expect(blocked(['configuration'], true)).toBe(false);
  });
});
