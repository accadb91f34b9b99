import { ConfigError, effectiveSettings } from '../../config/index.ts';
import { messageOf } from '../../core/errors/index.ts';
import { type Node, serviceFlags } from '../host/index.ts';
import { type Finding, findingsOf } from './finding.ts';
import { isThere } from './program.ts';

/** Problems in one finding. A file may have any number. */
const MOST_PROBLEMS = 3;

/** Checks the flags of the service and the file that they name, as they are on the disk, or the file that an installation would use. */
export async function checkConfiguration(node: Node): Promise<Finding> {
  const { flagsFile } = node;
  const { ok, failed } = findingsOf('configuration');
  try {
    const { configFile, settings } = await effectiveSettings(await plannedFlags(node));
    const isOff = settings.some(({ key, value }) => key === 'intercept' && value === false);
    const note = isOff ? ', off by configuration (intercept: false)' : '';
    return ok(`${configFile === undefined ? 'no file: the defaults apply' : `${configFile}, valid`}${note}`);
  } catch (error) {
    if (!(error instanceof ConfigError)) return failed(messageOf(error), `check ${flagsFile}`);
    const { problems, source } = error;
    const more = problems.length > MOST_PROBLEMS ? `; and ${problems.length - MOST_PROBLEMS} more` : '';
    const where = source === 'usage' ? `${flagsFile}: ` : '';
    return failed(
      `${where}${problems.slice(0, MOST_PROBLEMS).join('; ')}${more}`,
      'correct it until resizectl config check passes, then: systemctl restart cri-resize-shim',
    );
  }
}

/** Returns the flags of the service; before an installation, those that it would write if the configuration file exists. */
export async function plannedFlags({
  flagsFile,
  configFile,
}: Pick<Node, 'flagsFile' | 'configFile'>): Promise<readonly string[]> {
  if ((await isThere(flagsFile)) || !(await isThere(configFile))) return serviceFlags(flagsFile);
  return ['--config', configFile];
}
