import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ServerUnaryCall, sendUnaryData } from '@grpc/grpc-js';
import { Server, ServerCredentials } from '@grpc/grpc-js';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { Node, Site } from '../../../src/install/host/site.ts';
import { runtimePath } from '../../../src/runtime/backend.ts';
import { encode } from '../../../src/runtime/codec.ts';

export interface Unit {
  /** The command line of kubelet's process; absent if it does not run. */
  readonly commandLine?: readonly string[];
  readonly state?: string;
  /** The output of `systemctl show` about its command, its restarts and its files. */
  readonly properties?: readonly string[];
  /** Entries of the journal, as `journalctl --output=json` prints them. */
  readonly journal?: readonly object[];
  /** The output of `systemctl show` about the shim. */
  readonly shim?: readonly string[];
}

/**
 * A fake node in a folder: systemctl is a script that comes first in PATH, and the files of the kernel are regular
 * files.
 */
export class FakeInstallNode {
  readonly folder = mkdtempSync(join(tmpdir(), 'doctor-'));
  readonly node: Node = {
    cgroupRoot: join(this.folder, 'cgroup'),
    containerd: join(this.folder, 'containerd.sock'),
    listen: join(this.folder, 'shim.sock'),
    resizeListen: join(this.folder, 'resize.sock'),
    stateFolder: join(this.folder, 'state'),
    programFolder: this.folder,
    programSpace: MiB,
    flagsFile: join(this.folder, 'etc/flags'),
    configFile: join(this.folder, 'etc/config.yaml'),
    kubeletUnit: 'kubelet.service',
    kubeletFiles: [join(this.folder, 'kubelet/*.*')],
    procRoot: join(this.folder, 'proc'),
    systemdFolder: join(this.folder, 'systemd'),
    proxyProgram: join(this.folder, 'systemd'),
    kernel: '6.1.0-18-amd64',
    nodeVersion: '26.10.0',
    uid: 0,
  };
  readonly #path = process.env['PATH'];

  constructor() {
    for (const name of ['cgroup', 'proc', 'systemd', 'bin']) mkdirSync(join(this.folder, name));
    process.env['PATH'] = `${join(this.folder, 'bin')}:${this.#path}`;
    this.process(42, 'kubelet');
    this.put('units/cri-resize-shim.socket.d/x.conf', `[Socket]\nListenStream=\nListenStream=${this.node.listen}\n`);
    this.put('units/cri-resize-shim.service.d/x.conf', `[Service]\nReadWritePaths=${this.node.stateFolder}\n`);
  }

  /** Puts a process into the fake procfs. Its root is a folder of its own. */
  process(pid: number, name: string, { parent = 1, startTime = 1000 } = {}): void {
    this.put(`proc/${pid}/comm`, `${name}\n`);
    this.put(`proc/${pid}/stat`, `${pid} (${name}) S ${parent} ${'0 '.repeat(17)}${startTime} 0 0\n`);
    this.put(`proc/${pid}/status`, `Name:\t${name}\nNSpid:\t${pid}\n`);
    mkdirSync(join(this.folder, `proc/${pid}/root`), { recursive: true });
  }

  /** Returns the path of a file in the folder. */
  at(name: string): string {
    return join(this.folder, name);
  }

  /** Where the shim is installed on this node. */
  site(change: Partial<Site> = {}): Site {
    return {
      node: this.node,
      program: { kind: 'folder', folder: this.at('from'), node: '/opt/node/bin/node', arch: 'x64' },
      ...{ to: this.at('to'), unitFolder: this.at('units'), configFile: this.at('etc/config.yaml') },
      configText: '# all defaults\n',
      isConfigGiven: false,
      flagsFile: this.at('etc/flags'),
      runtimeFlags: [],
      kubeconfig: { path: this.at('provided/kubeconfig'), isUsed: false },
      commandFile: this.at('bin/resizectl'),
      wait: { timeoutMs: 60_000, signal: new AbortController().signal },
      ...change,
    };
  }

  /** Sets kubelet's unit in systemd; undefined means none. */
  unit(unit: Unit | undefined): void {
    const lines =
      unit === undefined
        ? ['LoadState=not-found', 'ActiveState=inactive', 'MainPID=0']
        : ['LoadState=loaded', `ActiveState=${unit.state ?? 'active'}`, `MainPID=${unit.commandLine ? 42 : 0}`];
    this.put('properties', [...lines, ...(unit?.properties ?? []), ''].join('\n'));
    this.systemctl(`case "$*" in
"show --property="*" -- kubelet.service") cat ${this.at('properties')};;
"show --property="*" -- cri-resize-shim.service") cat ${this.at('shim-properties')};;
show-environment) printf 'LANG=C.UTF-8\\nFROM_MANAGER=--v=7\\n';;
*) exit 9;;
esac`);
    this.put('shim-properties', [...(unit?.shim ?? ['ActiveState=inactive']), ''].join('\n'));
    this.put('journal', (unit?.journal ?? []).map((entry) => `${JSON.stringify(entry)}\n`).join(''));
    this.program('journalctl', `cat ${this.at('journal')}`);
    if (unit?.commandLine !== undefined)
      this.put('proc/42/cmdline', unit.commandLine.map((word) => `${word}\0`).join(''));
  }

  systemctl(script: string): void {
    this.program('systemctl', script);
  }

  /** Puts a shell script into PATH. */
  program(name: string, script: string): void {
    this.put(`bin/${name}`, `#!/bin/sh\n${script}\n`);
    chmodSync(join(this.folder, 'bin', name), 0o755);
  }

  put(file: string, text: string): void {
    mkdirSync(join(this.folder, file, '..'), { recursive: true });
    writeFileSync(join(this.folder, file), text);
  }

  remove(): void {
    process.env['PATH'] = this.#path;
    rmSync(this.folder, { recursive: true });
  }
}

const identity = (bytes: Buffer): Buffer => bytes;

/** Serves Version and Status of a runtime on a socket. Returns what stops it. */
export async function answeringRuntime(socket: string, name = 'containerd'): Promise<() => void> {
  const server = new Server();
  const version = {
    version: '0.1.0',
    runtime_name: name,
    runtime_version: 'v2.1.0',
    runtime_api_version: 'v1',
  };
  const answers = [
    ['Version', encode('VersionResponse', version)],
    ['Status', encode('StatusResponse', {})],
  ] as const;
  for (const [method, answer] of answers)
    server.register(
      runtimePath(method),
      (_call: ServerUnaryCall<Buffer, Buffer>, done: sendUnaryData<Buffer>) => done(null, answer),
      identity,
      identity,
      'unary',
    );
  await new Promise<void>((resolve, reject) =>
    server.bindAsync(`unix:${socket}`, ServerCredentials.createInsecure(), (error) =>
      error === null ? resolve() : reject(error),
    ),
  );
  return () => server.forceShutdown();
}
