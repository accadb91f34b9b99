import { existsSync, lstatSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { turnBypassOn } from '../../../src/install/node/bypass.ts';
import { answeringRuntime, FakeInstallNode } from '../../support/kubernetes/fake-install-node.ts';

let fake: FakeInstallNode;
beforeEach(() => (fake = new FakeInstallNode()));
const servers: (() => void)[] = [];
afterEach(() => {
  for (const stop of servers.splice(0)) stop();
  fake.remove();
});

const link = (): string => join(fake.folder, 'cri-resize-shim.socket.wants/cri-resize-shim-bypass.service');

/** A systemctl that links units as systemd does; starts of the bypass end with this code. */
function systemctl(start: number): void {
  fake.systemctl(`echo "$*" >>${fake.at('calls')}
case "$*" in
add-wants*) mkdir -p ${fake.folder}/cri-resize-shim.socket.wants; ln -sf /unit ${link()} ;;
disable*bypass*) rm ${link()} ;;
start*bypass*) exit ${start} ;;
show*-bypass.service) printf 'LoadState=loaded\\nActiveState=active\\nMainPID=1\\n' ;;
esac`);
}

const serve = async (socket: string): Promise<unknown> => servers.push(await answeringRuntime(socket));
const turnOn = () => turnBypassOn(fake.node, { unitFolder: fake.folder, answerMs: 0 });
const changes = (): string[] =>
  readFileSync(fake.at('calls'), 'utf8')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('show'));

test('a bypass that does not start is stopped and not held on, so that the shim continues, also after the next boot', async () => {
  systemctl(1);
  await expect(turnOn()).rejects.toThrow();
  expect(existsSync(join(link(), '..'))).toBe(true);
  expect(() => lstatSync(link())).toThrow('ENOENT');
  expect(changes()).toEqual([
    expect.stringContaining('add-wants'),
    'start -- cri-resize-shim-bypass.service',
    'disable -- cri-resize-shim-bypass.service',
    'stop -- cri-resize-shim-bypass.service',
  ]);
});

test('a bypass that was held on before stays held on if a later start fails', async () => {
  systemctl(0);
  await serve(fake.node.listen);
  expect(await turnOn()).toEqual({ isOn: true });
  expect(lstatSync(link()).isSymbolicLink()).toBe(true);
  systemctl(1);
  await expect(turnOn()).rejects.toThrow();
  expect(lstatSync(link()).isSymbolicLink()).toBe(true);
});

test('a bypass is turned off if no runtime answers through it, and the shim serves again', async () => {
  systemctl(0);
  await serve(fake.node.containerd);
  expect(await turnOn()).toEqual({
    isOn: false,
    problem: expect.stringMatching(/^no runtime answers at .*shim.sock: connect ENOENT/) as string,
  });
  expect(() => lstatSync(link())).toThrow('ENOENT');
  expect(changes()).toEqual([
    expect.stringContaining('add-wants'),
    'start -- cri-resize-shim-bypass.service',
    'stop -- cri-resize-shim.service',
    'disable -- cri-resize-shim-bypass.service',
    'start -- cri-resize-shim.service',
    'start -- cri-resize-shim-takeover.service',
  ]);
});

test('a bypass stays on if containerd itself does not answer, or if it was on before, and the reason is returned', async () => {
  systemctl(0);
  expect(await turnOn()).toEqual({ isOn: true, problem: expect.stringContaining('containerd.sock') as string });
  expect(lstatSync(link()).isSymbolicLink()).toBe(true);
  await serve(fake.node.containerd);
  writeFileSync(fake.at('calls'), '');
  expect(await turnOn()).toEqual({ isOn: true, problem: expect.stringContaining('resizectl bypass off') as string });
  expect(changes().at(-1)).toBe('stop -- cri-resize-shim.service');
});
