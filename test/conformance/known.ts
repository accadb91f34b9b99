/**
 * Specs that cannot pass in the test node on either side, and what they would need. They run all the same: whatever
 * they do, the two sides must do alike.
 */
export const cannotPass: ReadonlyMap<string, string> = new Map([
  [
    '[k8s.io] Image Manager public image with digest should be pulled and removed [Conformance]',
    'names an image by its digest, and nobody can build bytes for a digest',
  ],
  [
    '[k8s.io] Security Context bucket runtime should support MaskedPaths',
    'masks /bin/ls, which is a link to busybox in an image made of busybox: nothing there can start then',
  ],
  [
    '[k8s.io] Networking runtime should support networking runtime should support port mapping with host port and container port [Conformance]',
    'needs the portmap plugin, and that needs iptables',
  ],
]);

/**
 * With fewer specs than this passing direct, a full run says too little about the shim: something is wrong with the node
 * or the images. 103 pass with containerd 2.1 and runc 1.3.
 */
export const leastPassedDirect = 85;
