import { Command } from 'commander';
import * as z from 'zod/mini';
import { type Clock, MiB, pause } from '../../core/index.ts';
import {
  type Api,
  ApiRefusal,
  apiOf,
  IN_CLUSTER,
  isForbidden,
  openConnection,
  parsedResponse,
  readText,
  wordsOf,
} from '../../kubernetes/index.ts';

const daemonSet = z.object({
  metadata: z.object({ name: z.string(), generation: z.number() }),
  status: z.object({
    observedGeneration: z.exactOptional(z.number()),
    desiredNumberScheduled: z.number(),
    updatedNumberScheduled: z.exactOptional(z.number()),
    numberAvailable: z.exactOptional(z.number()),
  }),
});

const IDLE_MS = 10_000;
const POLL_MS = 5000;
/** The chart has just created the rights, and the API server may lag. */
const NEW_RIGHTS_MS = 30_000;
const LONGEST = 8 * MiB;

interface Context {
  readonly say: (line: string) => void;
  readonly clock: Clock;
  readonly api?: Api;
}

/**
 * The command `uninstall-all` of the installer, which the chart runs before it is deleted: gives DaemonSets the mode
 * `uninstall`, as `kubectl set env` does, and waits for their roll-out. Returns the exit code.
 */
export async function uninstallAll(argv: readonly string[], context: Context, stop: AbortSignal): Promise<0 | 1> {
  const command = new Command('cri-resize-shim-installer uninstall-all')
    .description('Uninstalls the shim on all nodes of DaemonSets, as a roll-out, and waits until it has ended.')
    .helpOption('-h, --help', 'Print this help and exit.')
    .argument('<DAEMONSET...>', 'Names of the DaemonSets.')
    .requiredOption('--namespace <NAME>', 'Their namespace.')
    .parse(argv, { from: 'user' });
  const { namespace } = command.opts<{ readonly namespace: string }>();
  const paths = command.args.map((name) => `/apis/apps/v1/namespaces/${namespace}/daemonsets/${name}`);
  const { say, clock, api = apiOf(() => openConnection(IN_CLUSTER)) } = context;
  const rightsFrom = clock.now() + NEW_RIGHTS_MS;
  const help = `kubectl get pods -n ${namespace} shows the pods that are not ready; repeat to continue`;
  const failed = (why: string): 1 => (say(`${why}: ${help}`), 1);
  for (let last = ''; ; ) {
    const lines = [];
    for (const path of paths) {
      try {
        lines.push(await progress(api, path, stop));
      } catch (error) {
        if (stop.aborted) return failed('the time is over');
        if (isForbidden(error) && clock.now() >= rightsFrom) return failed(wordsOf(error));
        lines.push(wordsOf(error));
      }
    }
    const line = lines.filter((one) => one !== undefined).join('; ');
    if (line !== last) say(line === '' ? 'the shim is removed from all nodes' : `waiting: ${line}`);
    if (line === '') return 0;
    last = line;
    await pause(clock, POLL_MS, stop).catch(() => undefined);
  }
}

/** Sets the mode of a DaemonSet. Returns how far its roll-out is; undefined once it has ended, or without it. */
async function progress(api: Api, path: string, signal: AbortSignal): Promise<string | undefined> {
  const env = [{ name: 'INSTALLER_MODE', value: 'uninstall' }];
  // A paused roll-out (OnDelete) would replace no pod.
  const updateStrategy = { type: 'RollingUpdate' };
  const body = { spec: { updateStrategy, template: { spec: { containers: [{ name: 'installer', env }] } } } };
  try {
    const response = await api({ method: 'PATCH', path, body, isStrategic: true, idleMs: IDLE_MS, signal });
    const { metadata, status } = parsedResponse(daemonSet, await readText(response, LONGEST), 'a DaemonSet');
    const { desiredNumberScheduled: all, updatedNumberScheduled = 0, numberAvailable = 0 } = status;
    const isSeen = (status.observedGeneration ?? 0) >= metadata.generation;
    const ready = isSeen ? Math.min(updatedNumberScheduled, numberAvailable) : 0;
    return isSeen && ready >= all ? undefined : `${metadata.name}: ${ready} of ${all} nodes`;
  } catch (error) {
    if (error instanceof ApiRefusal && error.status === 404) return undefined;
    throw error;
  }
}
