// Under podman, with the kernel and the seccomp profile that Debian ships: Airlock starts, or says which step failed and what to do.
import assert from 'node:assert/strict'
import { PROGRAMS, checks, doctor } from './checks.mjs'

/** The guest's own root once more, as the container's; what is written there goes to a layer that is thrown away. */
const ROOT = '/mnt/container'
const podman = (options, user = 'airlock-tester') =>
  `podman run --rm --network none --cgroups disabled --user ${user} --env HOME=/home/airlock-tester --volume /srv:/srv:ro ${options} --rootfs ${ROOT}:O ${PROGRAMS}/airlock`

export async function containers(task) {
  const { check } = checks(task, 'machine::containers')
  await check('root', 'a_container_starts_at_all', async (run) => {
    await run(`mkdir -p ${ROOT} && mount -o ro,noload /dev/vdc ${ROOT} && mkdir -p ${ROOT}.x`)
    assert.match(await run(`podman run --rm --network none --cgroups disabled --rootfs ${ROOT}:O /bin/sh -c 'echo inside; grep Seccomp: /proc/self/status'`), /inside\nSeccomp:\t2/)
  })
  await check('root', 'p10_in_a_stock_container_the_first_step_that_fails_is_named', async (run) => {
    const { blockers } = await doctor(run, 4, { program: podman('') })
    assert.equal(blockers.length, 1, JSON.stringify(blockers))
    assert.match(blockers[0].why, /podman/)
    assert.match(blockers[0].command ?? '', /^podman run --security-opt seccomp=unconfined/)
  })
  await check('root', 'p10_without_its_filter_the_next_step_is_named', async (run) => {
    const { blockers } = await doctor(run, 4, { program: podman('--security-opt seccomp=unconfined') })
    assert.equal(blockers.length, 1, JSON.stringify(blockers))
    assert.match(blockers[0].why, /\/proc/)
    assert.match(blockers[0].command ?? '', /unmask=ALL/)
  })
  await check('root', 'it_starts_in_a_container_that_leaves_it_what_it_needs', async (run) => {
    const { blockers, weaker } = await doctor(run, 0, { program: podman('--security-opt seccomp=unconfined --security-opt unmask=ALL --device /dev/fuse') })
    assert.deepEqual(blockers, [])
    assert.ok(!weaker.some(({ at }) => at === 'decoys'), JSON.stringify(weaker))
  })
  await check('root', 'p10_without_the_device_for_decoys_exactly_that_row_is_weaker', async (run) => {
    const { weaker } = await doctor(run, 0, { program: podman('--security-opt seccomp=unconfined --security-opt unmask=ALL') })
    assert.match(weaker.find(({ at }) => at === 'decoys')?.command ?? '', /--device \/dev\/fuse/)
  })
  await check('root', 'p10_root_in_a_container_is_told_to_be_somebody_else', async (run) => {
    const { blockers } = await doctor(run, 4, { program: podman('--security-opt seccomp=unconfined --security-opt unmask=ALL', 'root') })
    assert.equal(blockers.length, 1, JSON.stringify(blockers))
    assert.match(blockers[0].command ?? '', /^runuser -u /)
  })
}
