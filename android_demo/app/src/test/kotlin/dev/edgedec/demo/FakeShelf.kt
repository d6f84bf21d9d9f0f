package dev.edgedec.demo

import dev.edgedec.core.EdgedecException
import dev.edgedec.core.ImportCancelled
import dev.edgedec.core.Source
import java.io.File
import java.io.FileNotFoundException
import java.util.concurrent.CountDownLatch

/** Bundles that are names only; a copy goes on until the test ends it. */
class FakeShelf(vararg names: String) : Shelf {
    private val bundles = names.mapTo(mutableListOf()) { bundle(it) }
    private val gate = CountDownLatch(1)
    var incoming: Incoming? = null
    @Volatile var failure: String? = null
    @Volatile var copied = 0L to 0L

    override fun bundles(): List<Installed> = synchronized(bundles) { bundles.toList() }

    override fun demo(): Incoming? = incoming

    override fun copy(incoming: Incoming, watch: Watch): Installed {
        while (gate.count > 0) {
            watch.onProgress(copied.first, copied.second)
            if (watch.cancelled) throw ImportCancelled()
            Thread.sleep(1)
        }
        failure?.let { throw EdgedecException(it) }
        return bundle(incoming.name).also { synchronized(bundles) { bundles += it } }
    }

    override fun remove(bundle: Installed) {
        synchronized(bundles) { bundles -= bundle }
    }

    fun finishCopy() = gate.countDown()

    companion object {
        fun bundle(name: String) = Installed(name, File("/bundles/$name"), 12_900_000, demo = name == "demo")

        fun incoming(name: String) = Incoming(name, object : Source {
            override fun open(name: String) = throw FileNotFoundException(name)
        })
    }
}
