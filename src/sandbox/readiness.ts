import { messageOf } from '../errors/index.ts';
import type { ReadinessCheck, ReadinessReport } from '../observe/index.ts';
import type { ResizeContext } from './context.ts';

/** Whether resizes can be carried out now, and what stands in the way. Never rejects. */
export async function readinessOf(context: ResizeContext): Promise<ReadinessReport> {
  const checks = [backendCheck(context), await journalCheck(context), await volumesCheck(context)];
  return { ready: checks.every(({ ready }) => ready), checks };
}

function backendCheck({ backend }: ResizeContext): ReadinessCheck {
  const ready = backend.isConnected;
  return { name: 'backend', ready, says: ready ? 'connected' : 'not connected: resizes fail until it is back' };
}

async function journalCheck({ journal }: ResizeContext): Promise<ReadinessCheck> {
  const readiness = await journal.readiness();
  if (readiness.ready) return { name: 'journal', ready: true, says: 'writable' };
  return { name: 'journal', ready: false, says: `resizes are refused: ${readiness.error.message}` };
}

/** How volumes are remounted is found out on nodes that have some. */
async function volumesCheck({ volumes }: ResizeContext): Promise<ReadinessCheck> {
  const name = 'volumes';
  if (!volumes.isPrepared) return { name, ready: true, says: 'no memory-backed volume met yet' };
  try {
    const method = await volumes.method();
    const says = method.kind === 'syscalls' ? 'remounted by system calls' : `remounted by mount(8): ${method.because}`;
    return { name, ready: true, says };
  } catch (error) {
    return { name, ready: false, says: `cannot be remounted: ${messageOf(error)}` };
  }
}
