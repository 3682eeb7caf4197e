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
  // One thing after the other is taken out of the way; each time what is left is named, in one command.
  const option = (name) => `--security-opt ${name} `
  const inTheWay = [
    ['a_stock_container', /filter of the container \(podman\)/, 'seccomp=unconfined'],
    ['a_container_without_its_filter', /AppArmor profile containers-default/, 'apparmor=unconfined'],
    ['a_container_without_its_filter_and_profile', /\/proc/, 'unmask=ALL'],
  ]
  for (const [at, [name, why]] of inTheWay.entries()) {
    await check('root', `p10_in_${name}_the_first_step_that_fails_is_named`, async (run) => {
      const options = (some) => some.map(([, , one]) => option(one)).join('')
      const { blockers } = await doctor(run, 4, { program: podman(options(inTheWay.slice(0, at))) })
      assert.equal(blockers.length, 1, JSON.stringify(blockers))
      assert.match(blockers[0].why, why)
      assert.equal(blockers[0].command, `podman run ${options(inTheWay.slice(at))}…`)
    })
  }
  const open = inTheWay.map(([, , one]) => option(one)).join('')
  await check('root', 'it_starts_in_a_container_that_leaves_it_what_it_needs', async (run) => {
    const { blockers, weaker } = await doctor(run, 0, { program: podman(`${open}--device /dev/fuse`) })
    assert.deepEqual(blockers, [])
    assert.ok(!weaker.some(({ at }) => at === 'decoys'), JSON.stringify(weaker))
  })
  await check('root', 'p10_without_the_device_for_decoys_exactly_that_row_is_weaker', async (run) => {
    const { weaker } = await doctor(run, 0, { program: podman(open) })
    assert.match(weaker.find(({ at }) => at === 'decoys')?.command ?? '', /--device \/dev\/fuse/)
  })
  await check('root', 'p10_root_in_a_container_is_told_to_be_somebody_else', async (run) => {
    const { blockers } = await doctor(run, 4, { program: podman(open, 'root') })
    assert.equal(blockers.length, 1, JSON.stringify(blockers))
    assert.match(blockers[0].command ?? '', /^runuser -u /)
  })
}
