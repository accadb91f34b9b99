import { execa } from 'execa';
import { expect, test } from 'vitest';
import { quoted, shellVariables } from './boot-files.ts';
import { containerdConfig } from './containerd-config.ts';

test('a quoted word reaches the command unchanged', async () => {
  const words = ["it's", 'a b', '$HOME', '`id`', 'line\nbreak', ''];
  const { stdout } = await execa('sh', ['-c', `printf '<%s>' ${words.map(quoted).join(' ')}`]);
  expect(stdout).toBe(words.map((word) => `<${word}>`).join(''));
});

test('shell variables are set for the processes of the shell', async () => {
  const { stdout } = await execa('sh', ['-c', `${shellVariables({ NODE_X: "a'b c" })}env`]);
  expect(stdout).toContain("NODE_X=a'b c");
});

test('containerd 1.x gets configuration format 2 and containerd 2.x format 3, both with the chosen runtime', () => {
  const settings = { runtime: '/parts/crun', cniPlugins: '/parts/cni', systemdCgroup: false };
  const old = containerdConfig({ ...settings, release: '1.6' });
  const current = containerdConfig({ ...settings, release: '2.1' });
  expect(old).toMatch(/^version = 2$/m);
  expect(old).toContain('sandbox_image = "localhost/pause:1"');
  expect(current).toMatch(/^version = 3$/m);
  expect(current).toContain('sandbox = "localhost/pause:1"');
  for (const config of [old, current]) {
    expect(config).toContain('BinaryName = "/parts/crun"');
    expect(config).toMatch(/^\[timeouts\]$/m);
  }
});

test('the configuration of containerd sets whether runc creates its cgroups through systemd', () => {
  const settings = { release: '2.1', runtime: '/parts/runc', cniPlugins: '/parts/cni' } as const;
  expect(containerdConfig({ ...settings, systemdCgroup: true })).toMatch(/^SystemdCgroup = true$/m);
  expect(containerdConfig({ ...settings, systemdCgroup: false })).toMatch(/^SystemdCgroup = false$/m);
});
