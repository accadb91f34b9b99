import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

const networks = '/run/suite/networks';

/** A network whose plugin fails on demand. It forwards to the plugin `bridge`. */
const network = {
  cniVersion: '1.0.0',
  name: 'failing',
  plugins: [
    {
      type: 'cni-bridge-fp',
      bridge: 'cni-fp',
      isGateway: true,
      ipam: { type: 'host-local', ranges: [[{ subnet: '10.89.0.0/16' }]], routes: [{ dst: '0.0.0.0/0' }] },
      capabilities: { 'io.kubernetes.cri.pod-annotations': true },
    },
  ],
};

/**
 * Returns a function that adds to containerd's configuration what its tests need (script/test/utils.sh of its module):
 * a runtime and a network that fail on demand, and a socket for NRI plugins.
 * @param programs the folder of the failing plugins
 */
export async function withFailpoints(programs: string): Promise<(config: string) => string> {
  await mkdir(networks, { recursive: true });
  await writeFile(join(networks, '10-failing.conflist'), JSON.stringify(network));
  return (config) => {
    const inRuntime = config
      .replace('disable_apparmor = true\n', 'disable_apparmor = true\ndrain_exec_sync_io_timeout = "10s"\n')
      .replace('bin_dirs = [', `bin_dirs = ["${programs}", `);
    return inRuntime + further;
  };
}

const further = `
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc-fp]
cni_conf_dir = "${networks}"
cni_max_conf_num = 1
pod_annotations = ["io.containerd.runtime.v2.shim.failpoint.*"]
runtime_type = "io.containerd.runc-fp.v1"
[plugins."io.containerd.nri.v1.nri"]
disable = false
socket_path = "/var/run/nri-test.sock"
plugin_path = "/no/pre-launched/nri/plugins"
`;
