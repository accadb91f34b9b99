import { join } from 'node:path';
import { execa } from 'execa';
import { errnoOf } from '../../tools/download/errors.ts';
import type { Progress } from '../../tools/download/progress.ts';
import { type Built, canObtain, obtainBuilt } from '../support/node/parts/built-programs.ts';

const version = 'v3.19.0';
const helm: Built = {
  name: 'helm',
  modules: [{ path: 'helm.sh/helm/v3', version, linking: '', programs: { helm: './cmd/helm' } }],
  what: `helm ${version}`,
  time: 'two to six minutes',
};

/** Returns a helm: the machine's own, or one that is built with Go. Undefined without either. */
export async function prepareHelm(progress: Progress): Promise<string | undefined> {
  if (await isOnPath()) return 'helm';
  return (await canObtain(helm)) ? join((await obtainBuilt(helm, progress)).folder, 'bin/helm') : undefined;
}

async function isOnPath(): Promise<boolean> {
  try {
    await execa('helm', ['version']);
    return true;
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return false;
    throw error;
  }
}
