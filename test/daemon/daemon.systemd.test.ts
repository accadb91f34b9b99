import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { FakeSystemd } from '../support/daemon/fake-systemd.ts';
import { TestDaemon } from '../support/daemon/test-daemon.ts';
import { NotifySocket } from '../support/daemon/notify-socket.ts';

const daemon = new TestDaemon();
const systemd = new FakeSystemd(daemon);

describe('notifications to systemd', () => {
  test('sends READY once it serves, WATCHDOG while it runs, and STOPPING with the shutdown timeout', async () => {
    await daemon.startBackend();
    const notifications = new NotifySocket(join(daemon.folder, 'notify.sock'));
    daemon.cleanUp(() => notifications.close());
    const descriptor = systemd.hold(systemd.cri);
    const env = { NOTIFY_SOCKET: notifications.name, WATCHDOG_USEC: '300000' };
    const program = systemd.start([['cri', descriptor]], env, '--shutdown-timeout', '90s');
    expect(await notifications.waitFor('READY=1')).toBe(`READY=1\nSTATUS=serving ${systemd.cri}`);
    expect(await daemon.connect(systemd.cri).call('/s/Echo', 'hello')).toBe('hello');
    await notifications.waitFor('WATCHDOG=1');
    program.kill('SIGTERM');
    expect(await notifications.waitFor('STOPPING=1')).toBe(
      'STOPPING=1\nEXTEND_TIMEOUT_USEC=105000000\nSTATUS=waiting for running calls',
    );
    expect(await program.exited).toEqual({ code: 0, signal: null });
  });
});
