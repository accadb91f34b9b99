import { expect, test } from 'vitest';
import { removalAfter } from '../../../src/install/rollout/host.ts';

test('the paths that systemd removes are quoted as words of a unit’s command', () => {
  expect(removalAfter(['/opt/a b', '/opt/$c"d\\e'])).toBe(
    String.raw`--property=ExecStopPost=/bin/rm -rf -- "/opt/a b" "/opt/$$c\"d\\e"`,
  );
});
