import { defaultOf } from '../../config/index.ts';
import type { ArgumentText, CommandText, OptionText } from './texts.ts';

export const defaultKubeletUnit = 'kubelet.service';

const kubeletUnit: OptionText = {
  flags: '--kubelet-unit <UNIT>',
  description: `The systemd unit of kubelet (default ${defaultKubeletUnit}).`,
};
const installOptions: readonly OptionText[] = [
  { flags: '--dry-run', description: 'Print the changes without making them.' },
  kubeletUnit,
  {
    flags: '--timeout <DURATION>',
    description: 'Maximum time for the shim to become ready, and for kubelet to come back (default 1m).',
  },
];
const configOption: OptionText = {
  flags: '--config <FILE>',
  description: 'Replace the configuration of the shim with this file (by default the existing one is kept).',
};
const kubeconfigOption: OptionText = {
  flags: '--kubeconfig <FILE>',
  description:
    'Copy this kubeconfig to /var/lib/cri-resize-shim-installer/kubeconfig, readable only by root. The DaemonSet uses it.',
};
const rollback =
  'If a step fails or the command is interrupted, all changes are rolled back. Exit codes: 0 all steps are done or were done before, 2 refused, nothing was changed, 3 all changes were rolled back, 6 a change could not be rolled back, 7 nothing was changed, or all was rolled back, because another process installs or removes the shim, or has changed a file of kubelet.';

const switchOptions: readonly OptionText[] = [
  { flags: '--dry-run', description: 'Print the changes without making them.' },
  {
    flags: '--timeout <DURATION>',
    description: 'Maximum time for the shim to come back (default 1m).',
  },
];
const switchText =
  'Nothing but this value changes in the file: comments, order and symbolic links stay. systemd keeps the sockets during the restart, so kubelet stays connected; running calls are answered. If the shim does not come back as asked, file and shim are restored (exit code 3).';
const configFile: ArgumentText = {
  form: '[FILE]',
  description:
    'the file (default: the flags of the service in /etc/default/cri-resize-shim, and the file that they name)',
};

/** Commands about this node and the shim on it. */
export const nodeCommands: readonly CommandText[] = [
  {
    name: 'doctor',
    arguments: [],
    options: [
      {
        flags: '--listen <ADDRESS>',
        description: `Socket on which the shim serves the CRI (default ${defaultOf('listen')}).`,
      },
      {
        flags: '--container-runtime-endpoint <ADDRESS>',
        description: `Socket of containerd (default ${defaultOf('containerRuntimeEndpoint')}).`,
      },
      {
        flags: '--state-folder <FOLDER>',
        description: `Folder of the journal of the shim (default ${defaultOf('stateFolder')}).`,
      },
      kubeletUnit,
    ],
    summary: 'check whether this node meets the requirements of the shim, and how it is set up',
    description: [
      'Changes nothing. Prints one line per check with what was found, and what to do if a check does not pass.',
      'Exit codes: 0 all checks pass, 1 at least one warning, 2 at least one check failed: the shim would not work, or kubelet has no runtime.',
    ],
    examples: [
      ['resizectl doctor', 'before and after the installation of the shim'],
      ['resizectl doctor -o json', 'for programs'],
    ],
  },
  {
    name: 'install',
    arguments: [],
    options: [...installOptions, configOption, kubeconfigOption],
    summary: 'install the shim on this node, and point kubelet at it',
    description: [
      'Runs the checks of doctor first. If one fails, nothing is changed. (A kubelet that uses the shim and ends again after each start is not such a failure.) Then copies the program to /usr/local/lib/cri-resize-shim and the units to /etc/systemd/system, and writes a configuration to /etc/cri-resize-shim unless there is one. Starts the shim. Once the shim is ready, sets the endpoint of kubelet in its configuration file, a drop-in or its flag, and in the file instance-config.yaml of kubeadm. The original of each changed file is kept next to it. Then restarts kubelet, and waits until kubelet calls through the shim. Pods keep running.',
      rollback,
    ],
    examples: [
      ['resizectl install --dry-run', 'the changes on this node'],
      ['resizectl install', 'also upgrades; what is up to date stays unchanged'],
    ],
  },
  {
    name: 'uninstall',
    arguments: [],
    options: installOptions,
    summary: 'remove the shim from this node, and point kubelet back at the runtime',
    description: [
      'Restores the previous endpoint of kubelet (without the saved file: the socket of containerd from the configuration of the shim) and restarts kubelet, then removes the sockets, the service, the units and the program. The configuration and the state folder are kept. Pods keep running with their current limits and volume sizes.',
      rollback,
    ],
    examples: [['resizectl uninstall --dry-run', 'the changes on this node']],
  },
  {
    name: 'on',
    arguments: [],
    options: switchOptions,
    summary: 'have the shim act on resizes',
    description: ['Sets intercept: true in the configuration file of the service, and restarts the shim.', switchText],
    examples: [['resizectl on', '']],
  },
  {
    name: 'off',
    arguments: [],
    options: switchOptions,
    summary: 'have the shim forward every call unchanged',
    description: [
      'Sets intercept: false in the configuration file of the service, and restarts the shim. Metrics and health checks stay. The state holds until resizectl on, also after a reboot.',
      switchText,
    ],
    examples: [['resizectl off', '']],
  },
  {
    name: 'config check',
    arguments: [configFile],
    options: [],
    summary: 'check a configuration file of the shim',
    description: [
      'Prints one line for each problem, with file, line, key and value, and what is allowed. Needs no running shim. Exit codes: 0 the file is valid, 1 it is not.',
    ],
    examples: [['resizectl config check config.yaml', 'before the file is installed']],
  },
  {
    name: 'config show',
    arguments: [configFile],
    options: [],
    summary: 'print every setting of the shim with its value, and where it comes from',
    description: [
      'Reads the flags of the service and the file that they name, as they are on the disk. A running shim has the values that it has read at its start.',
    ],
    examples: [['resizectl config show -o json', 'for programs']],
  },
  {
    name: 'bypass on',
    arguments: [],
    options: [],
    summary: 'let clients of the shim reach containerd without it',
    description: [
      'For an incident in which the shim is suspected. Starts cri-resize-shim-bypass.service, then stops the shim. Running calls are answered. Pods keep running; resizes reach containerd unchanged. The bypass stays on until resizectl bypass off, also after a reboot.',
      'Without resizectl: systemctl add-wants cri-resize-shim.socket cri-resize-shim-bypass.service; systemctl start cri-resize-shim-bypass.service; systemctl stop cri-resize-shim.service',
    ],
    examples: [['resizectl bypass on', '']],
  },
  {
    name: 'bypass off',
    arguments: [],
    options: [],
    summary: 'start the shim, and move the clients of the bypass to it',
    description: [
      'Returns when all clients use the shim. Running calls are answered first. If the shim does not start, the bypass stays on (exit code 1).',
      'Without resizectl: systemctl disable cri-resize-shim-bypass.service; systemctl start cri-resize-shim.service',
    ],
    examples: [['resizectl bypass off', '']],
  },
  {
    name: 'bypass drain',
    arguments: [],
    options: [],
    summary: 'move the clients of the bypass to the shim that runs',
    description: ['cri-resize-shim-takeover.service runs this each time when the shim is ready again.'],
    examples: [],
  },
];
