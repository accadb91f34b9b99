/** The table of the CRI calls that the shim handles or amends. All other calls are forwarded. */

import { type Backend, runtimePath, SHIM_STATUS_PATH } from '../../runtime/index.ts';
import type { DecreaseReclaimer, Node } from '../../sandbox/index.ts';
import type { LocalHandlers } from '../local-calls.ts';
import type { RawUnaryHandler } from '../unary/call.ts';
import { containerEvents, containerStatus } from './container-status.ts';
import {
  forgetContainer,
  forgetPod,
  learnContainer,
  learnPod,
  learnRestoredPod,
  startContainer,
  startingContainer,
} from './create-and-remove.ts';
import { amendedHandler } from './forward.ts';
import type { AmendedCall, Interceptors } from './interceptors.ts';
import { podSandboxStatus } from './pod-sandbox-status.ts';
import { type Program, runtimeConfig, runtimeStatus, shimStatus } from './runtime.ts';
import { listContainerStats, podSandboxStats, podSandboxStatsAnswered } from './stats.ts';
import { updateContainerResources, updatePodSandboxResources } from './update-resources.ts';

/** Returns the table of interceptors, by path. */
export function createInterceptors(node: Node, decreaseReclaimer: DecreaseReclaimer, program: Program): Interceptors {
  return {
    handlers: new Map([
      [runtimePath('UpdateContainerResources'), updateContainerResources(node)],
      [runtimePath('UpdatePodSandboxResources'), updatePodSandboxResources(node)],
      [runtimePath('RuntimeConfig'), runtimeConfig(node.backend)],
      [SHIM_STATUS_PATH, shimStatus(program)],
    ]),
    amendments: new Map<string, AmendedCall>([
      [runtimePath('ContainerStatus'), { ...containerStatus(node), logLevel: 'debug' }],
      [runtimePath('Status'), { ...runtimeStatus(node.failOpen, program), logLevel: 'debug' }],
      [runtimePath('PodSandboxStatus'), { amendment: podSandboxStatus(node, decreaseReclaimer), logLevel: 'debug' }],
      [
        runtimePath('PodSandboxStats'),
        { amendment: podSandboxStatsAnswered(node, decreaseReclaimer), logLevel: 'debug' },
      ],
      [runtimePath('RunPodSandbox'), { amendment: learnPod(node), logLevel: 'info' }],
      [runtimePath('RestorePod'), { amendment: learnRestoredPod(node), logLevel: 'info' }],
      [runtimePath('RemovePodSandbox'), { amendment: forgetPod(node), logLevel: 'info' }],
      [runtimePath('CreateContainer'), { amendment: learnContainer(node), logLevel: 'info' }],
      [runtimePath('StartContainer'), { amendment: startContainer(node), logLevel: 'info' }],
      [runtimePath('RemoveContainer'), { amendment: forgetContainer(node), logLevel: 'info' }],
    ]),
    streams: new Map([[runtimePath('GetContainerEvents'), containerEvents(node)]]),
    delays: new Map([
      [runtimePath('StartContainer'), startingContainer(node)],
      [runtimePath('PodSandboxStats'), podSandboxStats(node, decreaseReclaimer)],
      [runtimePath('ListContainerStats'), listContainerStats(node, decreaseReclaimer)],
      [runtimePath('StreamContainerStats'), listContainerStats(node, decreaseReclaimer)],
    ]),
  };
}

/** Returns the local server's handlers: handled calls, and amended calls, which reach it with compressed messages. */
export function localHandlers({ handlers, amendments }: Interceptors, backend: Backend): LocalHandlers {
  const amended = [...amendments].map(
    ([path, { amendment }]) => [path, amendedHandler(backend, amendment)] as const satisfies [string, RawUnaryHandler],
  );
  return new Map([...amended, ...handlers]);
}
