package dev.edgedec.demo

import dev.edgedec.core.EdgedecException
import dev.edgedec.core.ImportCancelled
import dev.edgedec.core.Source
import java.io.File

/** A bundle on this phone. */
data class Installed(val name: String, val folder: File, val bytes: Long, val demo: Boolean = false)

/** A bundle that is to be copied to this phone. */
class Incoming(val name: String, val source: Source, val demo: Boolean = false)

/** The bundles on this phone. */
interface Shelf {
    fun bundles(): List<Installed>

    /** Returns the bundle that the app brings, if it is not on the shelf yet. */
    fun demo(): Incoming?

    /**
     * Copies a bundle and checks every file; it is on the shelf only if this succeeds.
     *
     * @throws EdgedecException if it is damaged, cannot be read or does not fit, or if [watch] ended it
     */
    fun copy(incoming: Incoming, watch: Watch): Installed

    fun remove(bundle: Installed)
}

/** Follows a copy, and may end it. */
interface Watch {
    val cancelled: Boolean

    fun onProgress(copied: Long, total: Long)
}

/** Copies a bundle on a thread of its own. */
class Import(private val shelf: Shelf, private val incoming: Incoming) : Watch {
    @Volatile var copying = Copying(incoming.name)
        private set

    /** How it ended; null as long as it goes on. */
    @Volatile var outcome: Outcome? = null
        private set

    @Volatile override var cancelled = false
        private set

    fun start() = Thread(::run, "import").start()

    /** Ends it within a block; nothing remains. */
    fun cancel() {
        cancelled = true
    }

    override fun onProgress(copied: Long, total: Long) {
        copying = copying.copy(copiedBytes = copied, totalBytes = total)
    }

    private fun run() {
        outcome = try {
            Outcome.Copied(shelf.copy(incoming, this))
        } catch (_: ImportCancelled) {
            Outcome.Cancelled
        } catch (error: EdgedecException) {
            Outcome.Failed(error.message.orEmpty())
        } catch (error: RuntimeException) {
            // A picked folder belongs to another app, whose errors may be of any kind.
            Outcome.Failed("unexpected, please report it: $error")
        }
    }
}

/** How an import ended. */
sealed class Outcome {
    data class Copied(val bundle: Installed) : Outcome()
    data class Failed(val message: String) : Outcome()
    object Cancelled : Outcome()
}
