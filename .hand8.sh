cat > /tmp/pod.json <<J
{"metadata":{"name":"a","namespace":"d","uid":"u1"},"linux":{"cgroup_parent":"/kubepods/pod1","security_context":{"namespace_options":{"network":2}}}}
J
cat > /tmp/c.json <<J
{"metadata":{"name":"c"},"image":{"image":"localhost/busybox:1"},"command":["sleep","100000"],"linux":{}}
J
mkdir -p /sys/fs/cgroup/kubepods/pod1; echo "+cpu +memory +pids" > /sys/fs/cgroup/kubepods/cgroup.subtree_control
P=$(crictl runp /tmp/pod.json)
C=$(crictl create $P /tmp/c.json /tmp/pod.json)
crictl start $C
a=$(date +%s)
for i in $(seq 400); do
 timeout 40 crictl exec -s $C grep /dev /proc/self/mounts >/dev/null 2>&1 || { echo "hang or failure at $i"; ps -ef | tail -20; }
done
echo "done in $(( $(date +%s)-a ))"
