package dev.edgedec.demo

import android.app.Service
import android.content.Intent
import android.os.Binder
import android.os.IBinder
import dev.edgedec.core.Listener
import dev.edgedec.core.Request
import dev.edgedec.core.State
import java.io.File

/**
 * Owns the decoder as long as the app is seen.
 *
 * The activity binds it when it starts and lets it go when it is hidden, which closes the decoder: a model in the
 * background would be the first thing that Android kills for its memory.
 */
class DecodingService : Service() {
    private lateinit var keeper: Keeper
    private lateinit var vitals: Vitals
    private lateinit var hint: PaceHint

    /** What is bound. */
    inner class Local : Binder(), Host {
        override val state: State get() = keeper.state
        override val memoryMb: Int? get() = vitals.memoryMb
        override val thermal: Int? get() = vitals.thermal
        override fun open(folder: File, threads: Int?) = keeper.open(folder, threads)
        override fun generate(request: Request, listener: Listener) = keeper.generate(request, hint.follow(listener))
        override fun cancel() = keeper.cancel()
        override fun release() = keeper.release()
    }

    override fun onCreate() {
        super.onCreate()
        val parts = application as DemoApplication
        keeper = Keeper(parts::engine)
        vitals = Vitals(this)
        hint = parts.hint()
    }

    override fun onBind(intent: Intent?): IBinder = Local()

    /** Frees the model when memory is short; the next text opens it again. */
    override fun onTrimMemory(level: Int) {
        super.onTrimMemory(level)
        if (level >= CRITICAL) keeper.release()
    }

    override fun onLowMemory() {
        super.onLowMemory()
        keeper.release()
    }

    override fun onDestroy() {
        keeper.close()
        vitals.close()
        super.onDestroy()
    }

    private companion object {
        /** ComponentCallbacks2.TRIM_MEMORY_RUNNING_CRITICAL, which Android 14 and later send no more. */
        const val CRITICAL = 15
    }
}
