import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { Finding } from '../../../src/install/node/finding.ts';
import { worstOf } from '../../../src/install/node/finding.ts';
import type { Places } from '../../../src/resizectl/commands/install.ts';
import {
  afterInstall,
  locked,
  siteToInstall,
  siteToRemove,
  unrepaired,
} from '../../../src/resizectl/commands/install.ts';
import { reportOf } from '../../../src/resizectl/output/failure.ts';

test('an upgrade prints both versions, the next commands and how to undo it', () => {
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
  'an installation that is no upgrade prints the next commands and how to undo it: %j',
  (versions) => {
    expect(afterInstall(versions)).toBe(
      'next: resizectl doctor checks this node; resizectl get pods lists its pods\n' +
        'undo: resizectl uninstall removes the shim; pods keep running\n',
    );
  },
);

describe('failed checks that an installation may repair', () => {
  const failed = (check: string): Finding => ({ check, result: 'failed', found: '', remedy: 'x' });
  const blocked = (checks: readonly string[], isConfigGiven = false): boolean =>
    worstOf(unrepaired(checks.map(failed), { isConfigGiven })) === 'failed';

  test('a failing kubelet does not block an installation if it fails because it has no runtime', () => {
    expect(blocked(['kubelet', 'kubelet runtime'])).toBe(false);
    expect(blocked(['kubelet'])).toBe(true);
    expect(blocked(['kubelet runtime', 'containerd'])).toBe(true);
  });

  test('a failing kubelet does not block an installation if it uses the shim and the shim answers', () => {
    const loop: Finding = { ...failed('kubelet'), isLoopAtShim: true };
    const isBlocked = (...findings: Finding[]): boolean =>
      worstOf(unrepaired(findings, { isConfigGiven: false })) === 'failed';
    expect(isBlocked(loop)).toBe(false);
    expect(isBlocked(loop, failed('containerd'))).toBe(true);
  });

  test('an invalid configuration does not block an installation with another configuration', () => {
    expect(blocked(['configuration'])).toBe(true);
    expect(blocked(['configuration'], true)).toBe(false);
  });
});

describe('concurrent installations', () => {
  afterEach(() => vi.restoreAllMocks());

  test.each([
    [4711, ' (pid 4711)'],
    [undefined, ''],
  ])('a second installation names the process of the first one, %s, and exits with code 7', async (pid, named) => {
    vi.spyOn(process, 'geteuid').mockReturnValue(0);
    const busy: unknown = await locked(false, () => Promise.resolve({ kind: 'locked', pid })).catch(
      (error: unknown) => error,
    );
    expect(reportOf(busy, '')).toEqual({
      lines: [
        `nothing was changed: another installation runs${named}; what to do: wait until it has ended, and try again`,
      ],
      exit: 7,
    });
  });

  test('a dry run does not take the installation lock, and neither does a user without root rights', async () => {
    const take = vi.fn(() => Promise.resolve({ kind: 'locked', pid: 1 } as const));
    const geteuid = vi.spyOn(process, 'geteuid').mockReturnValue(0);
    await (await locked(true, take))();
    geteuid.mockReturnValue(1000);
    await (await locked(false, take))();
    expect(take).not.toHaveBeenCalled();
  });
});

describe('installation of a site', () => {
  let folder: string;
  let places: Places;

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'site-'));
    const [configFile, flagsFile, bypassFile] = ['config.yaml', 'flags', 'target'].map((name) => join(folder, name));
    places = { configFile: configFile!, flagsFile: flagsFile!, bypassFile: bypassFile! };
  });

  afterEach(() => rmSync(folder, { recursive: true }));

  const DEFAULT = '/run/containerd/containerd.sock';
  const { signal } = new AbortController();

  describe('a removal', () => {
    /** Returns the socket of the shim that the installation finds. */
    async function removed(config: string | undefined, flags?: string): Promise<readonly [string, readonly string[]]> {
      if (config !== undefined) writeFileSync(places.configFile, config);
      if (flags !== undefined) writeFileSync(places.flagsFile, `CRI_RESIZE_SHIM_FLAGS="${flags}"\n`);
      const said: string[] = [];
      const { node } = await siteToRemove({}, { signal, say: (line) => said.push(line) }, places);
      return [node.containerd, said];
    }

    const other = 'containerRuntimeEndpoint: unix:///run/k3s/containerd.sock\n';

    test('a removal uses the settings of the service, and prints nothing', async () => {
      expect(await removed(undefined)).toEqual([DEFAULT, []]);
      expect(await removed(other)).toEqual(['/run/k3s/containerd.sock', []]);
      expect(await removed(other, '--container-runtime-endpoint /run/flag.sock')).toEqual(['/run/flag.sock', []]);
    });

    test('a removal with a configuration that is not YAML uses the containerd socket that the shim used last', async () => {
      const said = [expect.stringMatching(/^the configuration is ignored where it is invalid: .*not valid YAML/)];
      expect(await removed('a: b: c')).toEqual([DEFAULT, said]);
      writeFileSync(places.bypassFile, 'CRI_RESIZE_SHIM_BYPASS_TO="/run/last \\$1.sock"\n');
      expect(await removed('a: b: c')).toEqual(['/run/last $1.sock', said]);
    });

    test('a removal uses the valid settings of an invalid configuration', async () => {
      writeFileSync(places.bypassFile, 'CRI_RESIZE_SHIM_BYPASS_TO="/run/last.sock"\n');
      expect((await removed(`${other}logLevel: loud\n`))[0]).toBe('/run/k3s/containerd.sock');
    });

    test('a removal is possible with invalid flags or an unreadable file of flags', async () => {
      expect(await removed(undefined, '--no-such-flag')).toEqual([
        DEFAULT,
        [expect.stringContaining('--no-such-flag')],
      ]);
      rmSync(places.flagsFile);
      mkdirSync(places.flagsFile);
      expect(await removed(undefined)).toEqual([DEFAULT, [expect.stringContaining('EISDIR')]]);
    });
  });

  describe('an installation with a given configuration', () => {
    /** Returns what the installation finds: the socket of the shim. */
    async function listenWith(given: string, flags?: string): Promise<string> {
      const file = join(folder, 'given.yaml');
      writeFileSync(file, given);
      if (flags !== undefined) writeFileSync(places.flagsFile, `CRI_RESIZE_SHIM_FLAGS="${flags}"\n`);
      return (await siteToInstall({ config: file }, signal, places)).node.listen;
    }

    const off = 'intercept: false\n';

    test('an installation uses the settings of a given configuration, and flags for the other settings', async () => {
      expect(await listenWith('listen: unix:///run/a/a.sock\n')).toBe('/run/a/a.sock');
      const flags = `--config ${places.configFile} --listen unix:///run/b/b.sock`;
      expect(await listenWith(off, flags)).toBe('/run/b/b.sock');
    });

    test('an installation replaces an invalid configuration with a given one', async () => {
      writeFileSync(places.configFile, 'a: b: c');
      expect(await listenWith(off, `--config=${places.configFile}`)).toBe('/run/cri-resize-shim/cri-resize-shim.sock');
    });

    test('an installation is refused if a flag and the given configuration differ, but not if they agree', async () => {
      const flags = (value: boolean): string => `--config ${places.configFile} --intercept=${value}`;
      await expect(listenWith(off, flags(true))).rejects.toMatchObject({
        name: 'Refusal',
        message: `${places.flagsFile} has --intercept, which takes precedence over the given configuration`,
      });
      expect(await listenWith(off, flags(false))).toMatch(/\.sock$/);
    });

    test.each([
      ['', 'has no --config'],
      ['--config /etc/other.yaml', 'the service reads /etc/other.yaml'],
      ['--no-such-flag', 'no-such-flag'],
    ])(
      'an installation with the flags "%s" is refused, because the service would not read the given configuration',
      async (flags, message) => {
        await expect(listenWith(off, flags)).rejects.toMatchObject({
          name: 'Refusal',
          message: expect.stringContaining(message) as string,
        });
      },
    );

    test('an installation is refused if the given configuration is invalid', async () => {
      await expect(listenWith('intercept: x\n')).rejects.toThrow('nothing was changed: invalid configuration: ');
    });
  });

  test('an installation without a given configuration uses the settings of the service', async () => {
    writeFileSync(places.flagsFile, 'CRI_RESIZE_SHIM_FLAGS="--listen unix:///run/b/b.sock"\n');
    expect((await siteToInstall({}, signal, places)).node.listen).toBe('/run/b/b.sock');
  });
});
