import { spawnSync } from 'node:child_process';
import { closeSync, existsSync, openSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test, vi } from 'vitest';
import { version } from '../src/core/config/version.ts';
import { TestDaemon } from './support/daemon/test-daemon.ts';
import { LONG_WAIT } from './support/long-wait.ts';

const daemon = new TestDaemon();

describe('the command line', () => {
  test('--version and --help print to stdout and exit 0', async () => {
    const printed = daemon.run({}, '--version');
    expect(await printed.exited).toEqual({ code: 0, signal: null });
    expect([printed.stdout, printed.stderr]).toEqual([`${version}\n`, '']);
    const help = daemon.run({}, '--help');
    expect(await help.exited).toEqual({ code: 0, signal: null });
    expect(help.stdout).toContain('--container-runtime-endpoint <ADDRESS>');
  });

  test('an invalid flag leads to exit code 2, and the error names the problem and refers to --help', async () => {
    const program = daemon.start('--log-level=loud');
    expect(await program.exited).toEqual({ code: 2, signal: null });
    expect(program.stderr).toBe(
      'cri-resize-shim: --log-level: "loud" must be one of trace, debug, info, warn, error\ncri-resize-shim: --help lists the flags\n',
    );
  });

  test('an invalid configuration file leads to exit code 1 and a line for each problem', async () => {
    const config = join(daemon.folder, 'config.yaml');
    writeFileSync(config, 'intercept: true\nlogLevel: loud\nshutdownTimeout: 3\n');
    const program = daemon.start('--config', config);
    expect(await program.exited).toEqual({ code: 1, signal: null });
    expect(program.stderr.split('\n')).toEqual([
      `cri-resize-shim: ${config}:2:1: logLevel: "loud" must be one of trace, debug, info, warn, error`,
      expect.stringContaining(
        `cri-resize-shim: ${config}:3:1: shutdownTimeout: 3 must be a duration such as`,
      ) as unknown,
      '',
    ]);
  });

  test.each([
    ['a file that is the journal', 0n, '<3>'],
    ['another file than the journal', 1n, ''],
  ])('writes an error at the start to %s, with the prefix of an error only for the journal', (_, more, prefix) => {
    const [journal, config] = [join(daemon.folder, 'journal'), join(daemon.folder, 'config.yaml')];
    writeFileSync(config, 'logLevel: loud\n');
    const descriptor = openSync(journal, 'w');
    const { dev, ino } = statSync(journal, { bigint: true });
    const env = { ...process.env, JOURNAL_STREAM: `${dev}:${ino + more}` };
    for (const flags of [['--config', config], ['--log-level=loud']])
      spawnSync(process.execPath, [daemon.file, ...flags], { env, stdio: ['ignore', 'ignore', descriptor] });
    closeSync(descriptor);
    const lines = readFileSync(journal, 'utf8').trim().split('\n');
    expect(lines).toHaveLength(3);
    for (const line of lines) expect(line.startsWith(`${prefix}cri-resize-shim: `), line).toBe(true);
  });

  test('applies the settings of a configuration file', async () => {
    await daemon.startBackend();
    const config = join(daemon.folder, 'config.yaml');
    writeFileSync(
      config,
      `listen: unix://${daemon.listen}\ncontainerRuntimeEndpoint: ${daemon.backendPath}\nlogLevel: warn\n`,
    );
    const program = daemon.run({}, '--config', config);
    await vi.waitFor(() => expect(existsSync(daemon.listen)).toBe(true), LONG_WAIT);
    expect(await daemon.connect().call('/s/Echo', 'x')).toBe('x');
    program.kill('SIGTERM');
    expect(await program.exited).toEqual({ code: 0, signal: null });
    expect(program.stderr).toBe('');
  });
});
