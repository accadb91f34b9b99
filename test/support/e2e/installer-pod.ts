import { randomUUID } from 'node:crypto';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { execa } from 'execa';
import { parseAllDocuments } from 'yaml';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { CriClient } from '../cri/client.ts';
import { makePodCgroup, podCgroupFolder, podCgroupParent, removePodCgroup } from '../cri/pod-cgroup.ts';
import type { FakeClusterApi } from '../kubernetes/fake-cluster-api.ts';
import { dockerArchive, layerOf } from '../node/parts/images.ts';

/** The part of the DaemonSet that the test reads. */
interface Template {
  readonly hostPID?: boolean;
  readonly terminationGracePeriodSeconds: number;
  readonly containers: readonly [
    {
      readonly image: string;
      readonly command: readonly string[];
      readonly args: readonly string[];
      readonly env: readonly {
        readonly name: string;
        readonly value?: string;
      }[];
      readonly securityContext: { readonly privileged: boolean; readonly readOnlyRootFilesystem: boolean };
      readonly readinessProbe: { readonly exec: { readonly command: readonly string[] } };
      readonly resources: { readonly limits: { readonly memory: string } };
      readonly volumeMounts: readonly {
        readonly name: string;
        readonly mountPath: string;
        readonly readOnly?: boolean;
      }[];
    },
  ];
  readonly volumes: readonly {
    readonly name: string;
    readonly hostPath?: { readonly path: string };
    readonly configMap?: object;
    readonly emptyDir?: object;
  }[];
}

const template = ((): Template => {
  const text = readFileSync('deploy/kustomize/daemonset.yaml', 'utf8');
  const [document] = parseAllDocuments(text).map((each) => each.toJSON() as { spec: { template: { spec: Template } } });
  return document!.spec.template.spec;
})();
const [container] = template.containers;

export const image = `docker.io/library/${container.image}`;
export const STAGING = '/var/lib/cri-resize-shim-installer';

export interface PodSettings {
  readonly api: FakeClusterApi;
  readonly nodeName: string;
  /** The content of the ConfigMap. */
  readonly config?: string;
  /** Further flags of the installer. */
  readonly flags?: readonly string[];
  readonly mode?: 'install' | 'uninstall';
}

const KEEPS_MS = 60_000;

/** The DaemonSet's pod on this node, created by CRI as kubelet creates it from the manifest. */
export class InstallerPod {
  private constructor(
    readonly client: CriClient,
    readonly folder: string,
    readonly uid: string,
    readonly sandboxId: string,
    readonly id: string,
  ) {}

  static async start(client: CriClient, settings: PodSettings): Promise<InstallerPod> {
    const folder = mkdtempSync(join(tmpdir(), 'installer-pod-'));
    const uid = randomUUID();
    const memory = parseMi(container.resources.limits.memory);
    const files = { 'memory.max': String(memory), 'cpu.max': 'max 100000', 'cpu.weight': '10' };
    makePodCgroup(podCgroupFolder(uid, 'burstable'), files);
    const namespaces = { network: 0, pid: template.hostPID === true ? 2 : 1, ipc: 0 };
    const { privileged, readOnlyRootFilesystem } = container.securityContext;
    const sandbox = {
      metadata: { name: 'cri-resize-shim-installer', uid, namespace: 'cri-resize-shim', attempt: 0 },
      log_directory: join(folder, 'logs'),
      linux: {
        cgroup_parent: podCgroupParent(uid, 'burstable'),
        security_context: { namespace_options: namespaces, privileged },
      },
    };
    const { pod_sandbox_id } = await client.call<{ pod_sandbox_id: string }>('RunPodSandbox', { config: sandbox });
    const config = {
      metadata: { name: 'installer', attempt: 0 },
      image: { image },
      command: container.command,
      args: [...container.args, ...(settings.flags ?? [])].map((word) => expanded(word, settings)),
      envs: environment(settings),
      mounts: mounts(folder, settings),
      log_path: 'installer.log',
      linux: {
        resources: { memory_limit_in_bytes: memory, cpu_shares: 10 },
        security_context: { privileged, namespace_options: namespaces, readonly_rootfs: readOnlyRootFilesystem },
      },
    };
    const request = { pod_sandbox_id, config, sandbox_config: sandbox };
    const { container_id } = await client.call<{ container_id: string }>('CreateContainer', request);
    await client.call('StartContainer', { container_id });
    return new InstallerPod(client, folder, uid, pod_sandbox_id, container_id);
  }

  /** Returns the output of the pod, without the prefixes of the runtime. */
  log(): string {
    const file = join(this.folder, 'logs/installer.log');
    if (!existsSync(file)) return '';
    return readFileSync(file, 'utf8').replace(/^\S+ (?:stdout|stderr) [FP] /gm, '');
  }

  /** Runs kubelet's readiness probe. Returns `ready`, or its output, which kubelet shows in an event of the pod. */
  async state(): Promise<string> {
    const { command } = container.readinessProbe.exec;
    const request = { container_id: this.id, cmd: command, timeout: 10 };
    const { exit_code, stdout } = await this.client.call<{ exit_code: number; stdout: Buffer }>('ExecSync', request);
    return exit_code === 0 ? 'ready' : stdout.toString().trim();
  }

  /** Sends SIGTERM, and SIGKILL after the pod's grace period. Uses the given client, which may be cut off meanwhile. */
  async terminate(by: CriClient): Promise<void> {
    const request = { container_id: this.id, timeout: template.terminationGracePeriodSeconds };
    await by.call('StopContainer', request, 2 * KEEPS_MS);
  }

  async kill(): Promise<void> {
    process.kill(await this.client.pidOf(this.id), 'SIGKILL');
  }

  async exitCode(): Promise<number | undefined> {
    const { state, exit_code } = await this.client.containerStatus(this.id);
    return state === 2 ? exit_code : undefined;
  }

  async remove(): Promise<void> {
    await this.client.call('StopPodSandbox', { pod_sandbox_id: this.sandboxId });
    await this.client.call('RemovePodSandbox', { pod_sandbox_id: this.sandboxId });
    removePodCgroup(podCgroupFolder(this.uid, 'burstable'));
    rmSync(this.folder, { recursive: true });
  }
}

const parseMi = (text: string): number => Number(/^(\d+)Mi$/.exec(text)![1]) * MiB;

function environment({ api, nodeName, mode }: PodSettings): readonly { key: string; value: string }[] {
  return [
    ...container.env.map(({ name, value = nodeName }) => ({
      key: name,
      value: name === 'INSTALLER_MODE' ? (mode ?? value) : value,
    })),
    // kubelet passes these to every container.
    { key: 'KUBERNETES_SERVICE_HOST', value: api.advertised },
    { key: 'KUBERNETES_SERVICE_PORT', value: String(api.port) },
  ];
}

/** Expands `$(NAME)` from the container's own environment, as Kubernetes does. */
function expanded(word: string, settings: PodSettings): string {
  const all = new Map(environment(settings).map(({ key, value }) => [key, value]));
  return word.replaceAll(/\$\((\w+)\)/g, (whole, name: string) => all.get(name) ?? whole);
}

function mounts(folder: string, { api, config = '' }: PodSettings): readonly object[] {
  const put = (path: string, text: string): void => {
    mkdirSync(dirname(join(folder, path)), { recursive: true });
    writeFileSync(join(folder, path), text);
  };
  put('config/config.yaml', config);
  put('account/token', api.token);
  put('account/namespace', 'cri-resize-shim');
  put('account/ca.crt', api.tls.certificate);
  mkdirSync(join(folder, 'empty'));
  const sourceOf = (name: string): string => {
    const volume = template.volumes.find((one) => one.name === name)!;
    if (volume.hostPath === undefined) return join(folder, volume.configMap === undefined ? 'empty' : 'config');
    mkdirSync(volume.hostPath.path, { recursive: true });
    return volume.hostPath.path;
  };
  return [
    ...container.volumeMounts.map(({ name, mountPath, readOnly = false }) => ({
      host_path: sourceOf(name),
      container_path: mountPath,
      readonly: readOnly,
    })),
    {
      host_path: join(folder, 'account'),
      container_path: '/var/run/secrets/kubernetes.io/serviceaccount',
      readonly: true,
    },
  ];
}

/** The image that a builder has made from the Dockerfile (npm run nightly -- --only image); undefined without one. */
export const builtImage = process.env['IMAGE_ARCHIVE'];

/**
 * Imports the image of the Dockerfile. Without the image of a builder, approximates it without a builder and a
 * registry: the image's own folder comes from the Dockerfile's steps, and the base image is replaced by this machine's
 * programs of the same name with their libraries.
 */
export async function importImage(name: string): Promise<void> {
  if (builtImage !== undefined) {
    await execa('ctr', ['-n', 'k8s.io', 'images', 'import', builtImage]);
    return;
  }
  const folder = mkdtempSync(join(tmpdir(), 'image-'));
  try {
    const root = join(folder, 'root');
    for (const path of ['etc', 'proc', 'sys', 'dev', 'run', 'tmp', 'var/lib'])
      mkdirSync(join(root, path), { recursive: true });
    writeFileSync(join(root, 'etc/passwd'), 'root:x:0:0:root:/root:/bin/sh\n');
    await putProgram(root, process.execPath, '/usr/local/bin/node');
    for (const program of ['/usr/bin/nsenter', '/bin/sh']) await putProgram(root, program, program);
    const program = join(root, 'usr/local/lib/cri-resize-shim');
    await execa(process.execPath, ['dist/tools/package.js', '--only', 'tree', '--to', program]);
    cpSync('dist/cri-resize-shim-installer.js', join(program, 'dist/cri-resize-shim-installer.js'));
    const archive = join(folder, 'image.tar');
    const env = ['PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', 'MALLOC_ARENA_MAX=1'];
    writeFileSync(archive, dockerArchive([{ names: [name], layer: await layerOf(root), config: { env } }]));
    rmSync(root, { recursive: true });
    await execa('ctr', ['-n', 'k8s.io', 'images', 'import', archive]);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

async function putProgram(root: string, from: string, to: string): Promise<void> {
  const put = (source: string, target: string): void => {
    mkdirSync(dirname(join(root, target)), { recursive: true });
    cpSync(realpathSync(source), join(root, target));
  };
  put(from, to);
  const { stdout } = await execa('ldd', [realpathSync(from)]);
  for (const [, library = ''] of stdout.matchAll(/(\/\S+) \(0x/g))
    if (!existsSync(join(root, library))) put(library, library);
}
